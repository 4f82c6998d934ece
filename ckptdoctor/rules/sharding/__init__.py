"""X: checkpoints in several files."""
