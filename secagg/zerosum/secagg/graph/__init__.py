"""Who shares a mask with whom: graphs, their parameters and failure bounds."""
