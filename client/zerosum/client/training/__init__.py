"""Local training: from a client's examples to its update."""
