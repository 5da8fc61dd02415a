"""What pictures need of torchvision, where none is installed that fits the installed torch."""
