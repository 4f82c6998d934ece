"""Accounts for each tensor of a source in an export of it: by its values, wherever they went, and however they changed.

A name alone proves nothing. Names say where to look (``names.py``), values say whether it is there (``compare.py``).
"""
