"""Checks before a run, its plan, and what it has spent."""
