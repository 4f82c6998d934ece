"""Reads every value of a checkpoint once and says what the values are. Imports torch, and only when called."""
