"""Runs the rules over what was read, and has the words in which an examination is asked for and told."""
