"""Heals damaged tensors with those of another copy."""
