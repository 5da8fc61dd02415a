"""Queries of a federation: what they cost, the sums that answer them, and what is made of these."""
