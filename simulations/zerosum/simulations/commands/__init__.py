"""The command line: one module for each ``zerosum`` command."""
