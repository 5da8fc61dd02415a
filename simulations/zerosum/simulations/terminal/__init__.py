"""Terminal output and process ends: progress, errors, signals, logs."""
