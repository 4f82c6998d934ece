"""V: values that no header shows."""

# they wait until values are read
ALONE: tuple[str, ...] = ()
