"""Attack experiments: what leaks, what each protection stops, and what it does not."""
