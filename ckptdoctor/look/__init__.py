"""Shows a checkpoint: its contents, an excerpt of them, and values in numbers."""
