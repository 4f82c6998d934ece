"""Checkpoints: writing them whole or not at all, in every style, and going on from them."""
