"""Sweeps: runs of one experiment over lists of values and seeds, in parallel, resumable."""
