"""S: shapes of tensors."""
