"""Play attacks: interface, sealed views, workers, metrics, results."""
