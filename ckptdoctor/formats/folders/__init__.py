"""Reads checkpoints that are a folder of several files: each module knows one kind, and gives one ``Checkpoint``."""
