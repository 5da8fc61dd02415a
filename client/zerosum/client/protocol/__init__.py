"""A client's side of a private sum: stages, protection, decisions on disk, budget."""
