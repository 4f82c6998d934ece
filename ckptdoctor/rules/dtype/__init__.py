"""T: dtypes of tensors."""
