"""Seals a checkpoint: hashes of its files, tensors and blocks, which prove its bytes later, or name what changed.

A seal proves that bytes are as they were when it was made. It says nothing about whether they were good then.
"""
