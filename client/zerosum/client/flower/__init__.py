"""A client on Flower's engine: apps, the mod for other people's apps, simulated nodes."""
