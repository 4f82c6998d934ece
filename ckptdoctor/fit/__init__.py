"""Tells how a checkpoint fits a model, and gives its weights under the names that the model gives them."""
