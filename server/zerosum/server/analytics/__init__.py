"""Answers to queries: what is asked, what it costs, and what noisy sums say."""
