"""Reads everything that torch writes: archives, files from before torch 1.6 and 0.1.10, scripts, exported programs."""
