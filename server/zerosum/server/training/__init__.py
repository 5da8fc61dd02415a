"""The training loop: schedule, averaging, robust rules, server optimizers."""
