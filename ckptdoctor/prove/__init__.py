"""Proofs about a repair that use none of the code that plans or carries it out."""
