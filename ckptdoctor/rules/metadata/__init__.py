"""M: metadata beside the tensors."""
