"""W: the shape of the whole checkpoint."""
