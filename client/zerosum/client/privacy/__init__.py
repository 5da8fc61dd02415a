"""Mechanisms of local noise, their samplers and their privacy events."""
