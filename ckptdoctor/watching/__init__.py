"""Watches a run while it trains: each new checkpoint is judged once, when it is complete.

``files`` are the sizes and times of a checkpoint's files, ``judging`` what is found of one, and ``watch`` looks again
and again.
"""
