"""Draws the browser with Textual, from the same rules and the same events as the command line."""
