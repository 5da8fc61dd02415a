"""Play attacks on a user's own task, and on what a run folder of theirs released."""
