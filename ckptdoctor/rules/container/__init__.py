"""C: kinds of files."""
