"""The coordinator: sampling, private sums, optimization, accounting."""
