"""O: optimizer states, and whether they belong to the weights beside them."""

# those that judge a file by its headers; the other is only imported where values are read
ALONE: tuple[str, ...] = (
    "optimizer_bloat",
    "optimizer_class_mismatch",
    "optimizer_group_mismatch",
    "optimizer_missing",
    "optimizer_order_mismatch",
    "optimizer_step_dtype",
    "partial_resume_set",
    "progress_inconsistent",
    "scaler_or_amp_state",
    "scheduler_mismatch",
    "stale_hparams",
)
