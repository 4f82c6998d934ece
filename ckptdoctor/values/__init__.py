"""Reads every value of a checkpoint once and says what the values are. NumPy computes."""
