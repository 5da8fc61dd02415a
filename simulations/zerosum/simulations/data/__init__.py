"""Data sets, partitions, models and the built-in tasks."""
