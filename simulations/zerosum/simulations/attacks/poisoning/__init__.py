"""Attacks of malicious clients: on the model, and through it."""
