"""Files that must not be lost, read by others or written twice."""
