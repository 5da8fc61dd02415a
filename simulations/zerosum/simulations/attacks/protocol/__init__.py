"""Attack the secure-aggregation protocol: its masks, shares, requests and dropouts."""
