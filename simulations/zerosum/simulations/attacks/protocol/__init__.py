"""Attacks on the protocol: lies about who dropped out, and masks that can be guessed."""
