"""A survival curve of all nodes: people who left a study, counted over a grid."""
