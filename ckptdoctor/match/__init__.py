"""Brings a checkpoint to the names of a target: the comparison, and the search for the renames that fit."""
