"""Runs the commands: one file for each; it parses, calls what does the work, renders, and gives an exit status."""
