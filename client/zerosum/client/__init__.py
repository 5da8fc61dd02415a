"""What runs where the data is: local training, clipping, noise, masking."""
