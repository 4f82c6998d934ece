"""Finds the causes of shapes that differ between both sides of a comparison: one rule speaks of each key.

``shapes`` decides once for each comparison, ``explained_by_shapes`` says which keys need no other rule, and
``sweeping`` whether that explains why hardly anything fits.
"""
