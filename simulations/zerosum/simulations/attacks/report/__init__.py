"""The report of a suite of attacks."""
