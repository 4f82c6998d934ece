"""L: adapters (LoRA and its kin)."""
