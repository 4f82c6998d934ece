"""Recognises what is no checkpoint: one file for each kind of evidence; ``other_files`` asks them in order."""
