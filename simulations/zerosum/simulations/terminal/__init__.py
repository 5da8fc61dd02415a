"""What a terminal is shown: progress, errors, signals, logs."""
