"""Seals a checkpoint: hashes of its files, tensors and blocks, by which later reads prove the bytes, or name what changed.

A seal proves that bytes are as they were when it was made. It says nothing about whether they were good then.
"""
