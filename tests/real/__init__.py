"""Pairs of a checkpoint and a model as real libraries make them: what --auto makes of them, and what it refuses."""
