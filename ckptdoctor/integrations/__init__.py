"""Checks checkpoints where they are made: in transformers' Trainer, in Lightning, in Ray Train.

``saved`` judges what was saved, one after another; each other module brings the library's own hook to it, and is the
only one that imports that library.
"""
