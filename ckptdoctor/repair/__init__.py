"""Turns what was asked into steps, a plan, an output, and a proof of it."""
