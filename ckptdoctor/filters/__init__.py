"""Filters tensors for ``show --filter`` and the browser: says what the words mean and which tensors they keep."""
