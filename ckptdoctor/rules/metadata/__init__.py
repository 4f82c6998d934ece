"""M: metadata next to the tensors."""
