"""S: shapes of tensors."""

# those that judge a file by itself; the others are only imported where there is a reference to hold it against
ALONE: tuple[str, ...] = ("placeholder_shape",)
