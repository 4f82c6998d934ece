"""The command line: one file per command; each parses, calls the engine, renders, and gives an exit status."""
