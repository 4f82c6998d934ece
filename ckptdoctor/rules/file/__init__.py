"""F: whether the file is whole."""
