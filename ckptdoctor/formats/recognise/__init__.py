"""Recognises what is not a checkpoint: one file for each kind of evidence; ``other_files`` asks them in order."""
