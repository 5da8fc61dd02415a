"""Reconstruct records from updates and sums."""
