"""Decides which checkpoints of a store may go, and moves them into a trash folder from which all come back."""
