"""How a checkpoint fits a model, and its weights under the names that the model gives them."""
