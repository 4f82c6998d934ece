"""X: checkpoints in several files, of which each process may have written a part."""
