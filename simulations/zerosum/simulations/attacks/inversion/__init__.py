"""Attacks of a server on updates and their sums: whose records made them."""
