"""Tells whether what is wanted follows from the source and the edits, by code that applies none of them."""
