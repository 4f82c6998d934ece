"""L: adapters (LoRA and its kin)."""

# those that judge a file by itself; the others are only imported where there is a reference to hold it against
ALONE: tuple[str, ...] = (
    "adapter_includes_embeddings",
    "adapter_not_merged",
    "adapter_rank_config_mismatch",
    "compile_token_in_adapter",
    "empty_adapter",
    "lora_layout_mismatch",
    "peft_adapter_name_token",
)
