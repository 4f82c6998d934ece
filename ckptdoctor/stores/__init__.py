"""Examines whole stores of checkpoints and keeps what was found in one SQLite file.

``listing`` walks a store and groups its files into checkpoints, ``order`` makes batches of them, ``examine`` turns one
checkpoint into rows, an engine of ``engines`` does so in several processes, and ``writer`` is the one that writes.
``schema`` says what the tables are.
"""

MODES = ("changed", "sample", "all")  # what a deep audit reads as a whole
