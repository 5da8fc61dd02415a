"""Keys, masks, secret shares, signatures."""
