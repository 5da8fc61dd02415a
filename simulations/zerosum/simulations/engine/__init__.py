"""Where clients are computed: in this process, in worker processes, or on a cluster."""
