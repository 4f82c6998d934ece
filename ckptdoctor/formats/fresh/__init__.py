"""Writes containers anew out of contents that were read from any other: trees of plain values and tensors."""
