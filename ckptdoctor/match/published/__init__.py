"""Knows layouts that code bases have published: what each calls every tensor of a network, and the order of its values.

``table`` is what a layout is made of. Each network has a file of its own with the table of its code bases, and is
in ``catalogue``. ``matching`` tells whether a checkpoint and a target are two of them, and what becomes of each tensor.
"""
