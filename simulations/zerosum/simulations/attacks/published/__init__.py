"""Attack published tables and answers: reconstruct records, and link them to people."""
