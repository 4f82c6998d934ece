"""W: the structure of the whole checkpoint."""
