"""N: names of keys."""

# those that judge a file by itself; the others are only imported where there is a reference to hold it against
ALONE: tuple[str, ...] = (
    "checkpoint_wrapper_prefix",
    "compile_prefix",
    "flat_param",
    "fsdp_prefix",
    "lit_ema",
    "module_prefix",
    "num_batches_tracked_missing",
    "profiler_buffers",
    "swa_ema_prefix",
    "wrapper_prefix_other",
)
