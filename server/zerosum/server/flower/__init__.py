"""A server on Flower's engine: the app, the strategy, the registry of nodes."""
