"""V: values."""
