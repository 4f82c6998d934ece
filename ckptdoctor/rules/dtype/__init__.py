"""T: dtypes of tensors."""

# those that judge a file by its headers; the others are only imported where values are read
ALONE: tuple[str, ...] = (
    "bool_uint8_mask",
    "double_precision",
    "dtype_unsupported_by_target",
    "float8_raw",
    "integer_weights",
    "mixed_float_dtypes",
)
