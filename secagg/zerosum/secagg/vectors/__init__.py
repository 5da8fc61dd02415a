"""Integer vectors: the ring, its packed form, encoding, rounding, rotation."""
