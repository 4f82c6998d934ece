"""Compares two checkpoints: their headers, what is next to the tensors, and their values."""
