"""Attack the model, and its users, from malicious clients."""
