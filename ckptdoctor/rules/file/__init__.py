"""F: damaged and incomplete files."""
