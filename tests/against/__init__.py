"""Exports, and what became of their sources in them."""
