"""Shapes on both sides of a comparison, and their causes: one rule speaks of each key.

``shapes`` decides once for each comparison, ``explained_by_shapes`` says which keys need no other rule, and
``sweeping`` whether that explains why hardly anything fits.
"""
