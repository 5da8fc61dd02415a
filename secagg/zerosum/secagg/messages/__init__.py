"""What parties send one another and keep, byte by byte."""
