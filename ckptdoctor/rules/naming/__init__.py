"""N: names of keys."""
