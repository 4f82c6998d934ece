"""V: values that no header shows."""
