"""Whole files: opened, read, judged by the rules, with what would really work of what they advise."""
