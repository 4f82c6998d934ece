"""Recognisers, one file for each kind of evidence; ``recognise.other_files`` asks them in order."""
