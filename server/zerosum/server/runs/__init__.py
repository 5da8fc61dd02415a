"""A run's folder: records, checkpoints, resumption, results."""
