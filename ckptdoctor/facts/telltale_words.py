"""Words in keys by which a kind of key is known at first sight: of adapters, quantised layers, observers, layers."""

from __future__ import annotations

# what peft saves an adapter as (peft.utils.WEIGHTS_NAME, SAFETENSORS_WEIGHTS_NAME)
ADAPTER_FILES = frozenset({"adapter_model.safetensors", "adapter_model.bin"})
# one of these stands in every parameter of peft's tuners: as few as will do, because every file is searched for them
ADAPTERS = (
    *("lora_", "hada_", "lokr_", "vera_", "oft_", "hira_", "road_", "adamss_", "deft_", "frod_lambda", "lily_"),
    *("poly_router", "supertuning_", "ia3_l", "ln_tuning_layers", "c3a_kernel", "fourierft_spectrum", "miss_block"),
    *("hra_u", "shira_weight", "beft_bias", "waveft_spectrum", "trainable_tokens_delta"),
)
# one of these stands in the keys of each scheme of quantising (``facts.quantization``)
QUANTIZED = (
    "_scale_inv",
    "_scale",
    "SCB",
    "qweight",
    "scale_weight",
    "weight_packed",
    "__nf4",
    "__fp4",
    "_blocks",
    "W_q",
)
# and one of these in every key of an observer (``facts.quantization_torch``)
OBSERVERS = ("activation_post_process", "fake_quant", "_observer_", "observer_enabled")
# one of these stands in the keys of a list of alike layers (``facts.sharding``)
LAYER_LISTS = ("layer.", "layers.", "block.", "blocks.", "h.")
