"""Checkpoints that are a folder of several files: each module reads one kind of folder into one ``Checkpoint``."""
