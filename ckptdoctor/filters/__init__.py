"""The filter that ``show --filter`` and the browser share: what its words mean, and which tensors they keep."""
