"""What is shown of a checkpoint: its contents, a part of them, and values in numbers."""
