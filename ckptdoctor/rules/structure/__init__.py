"""W: the shape of the whole checkpoint."""

# those that judge a file by itself; the others are only imported where there is a reference to hold it against
ALONE: tuple[str, ...] = (
    "bare_list_or_tuple",
    "empty_state_dict",
    "multiple_networks",
    "multiple_weight_sets",
    "nested_state_dict",
    "non_string_keys",
    "non_tensor_in_state_dict",
    "numpy_leaves",
    "optimizer_file_as_model",
)
