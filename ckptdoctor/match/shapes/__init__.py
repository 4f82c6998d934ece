"""What the shapes on both sides of a comparison say about its cause: which rule speaks of which key.

``shapes`` decides once for each comparison, ``explained`` says which keys need no other rule, and
``sweeping`` whether that explains why hardly anything fits.
"""
