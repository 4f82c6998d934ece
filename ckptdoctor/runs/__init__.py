"""Finds the newest valid checkpoint of a training run: what is a checkpoint, at which step, and whether it is valid.

``grouping`` turns listings into candidates, ``step`` reads how far each is, ``validity`` says which levels it reaches,
and ``latest`` asks as few of them as it takes.
"""
