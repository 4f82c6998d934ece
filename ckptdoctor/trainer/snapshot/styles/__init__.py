"""The ways in which people save a model, one module each."""
