"""The account of a repair: whether what is wanted follows from the source and the edits, by code that applies none."""
