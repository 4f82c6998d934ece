"""A: how tensors lie in storages."""
