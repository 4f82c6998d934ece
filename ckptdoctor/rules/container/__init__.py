"""C: what kind of file it is."""
