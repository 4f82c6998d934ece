"""Saves what is whole of a broken checkpoint."""
