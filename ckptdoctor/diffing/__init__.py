"""What is different between two checkpoints: headers, contents beside the tensors, values."""
