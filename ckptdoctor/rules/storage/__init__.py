"""A: tensors and their storages."""
