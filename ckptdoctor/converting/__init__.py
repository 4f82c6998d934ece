"""Converts checkpoints from one container to another."""
