"""The command line: one file per command; each parses, calls what does the work, renders, and gives an exit status."""
