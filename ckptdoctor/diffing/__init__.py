"""Two checkpoints differ in headers, in contents next to the tensors, and in values."""
