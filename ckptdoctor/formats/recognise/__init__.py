"""Recognisers, one file for each kind of evidence; ``formats.recognised`` asks them in order."""
