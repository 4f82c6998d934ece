"""A checkpoint is shown by its contents, an excerpt of them, and values in numbers."""
