"""Writes new containers from contents that were read from any other: trees of plain values and tensors."""
