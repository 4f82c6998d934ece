"""Holds what the browser shows as plain data: nothing here knows of Textual, and all copes with 500,000 tensors."""
