"""Q: weights that were quantised."""
