"""Tensors that are computed of other tensors, piece by piece, and the proof of them: one table for both."""
