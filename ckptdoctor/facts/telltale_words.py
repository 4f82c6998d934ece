"""Words by which a kind of key is known at first sight: of adapters, quantised layers, observers, lists of layers."""

from __future__ import annotations

from collections.abc import Collection

# what peft saves an adapter as (peft.utils.WEIGHTS_NAME, SAFETENSORS_WEIGHTS_NAME)
ADAPTER_FILES = frozenset({"adapter_model.safetensors", "adapter_model.bin"})
# and its config (peft.utils.CONFIG_NAME)
ADAPTER_CONFIG = "adapter_config.json"
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
# and one of these in every key of an observer (``facts.quantization``)
OBSERVERS = ("activation_post_process", "fake_quant", "_observer_", "observer_enabled")
# one of these stands in the keys of a list of alike layers (``rules.sharding.layer_lists``)
LAYER_LISTS = ("layer.", "layers.", "block.", "blocks.", "h.")
# bytes of torch.get_rng_state(), of a CUDA generator's state, of one before torch 1.11, and of an MPS generator's
RNG_STATE_LENGTHS = frozenset({5056, 16, 816, 44})
# what torch.nn calls the parameters and buffers that nearly every model has
_LEAVES = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
_TELLING = 3  # letters from which an end of such a name is no name of its own


def ends_of_names(keys: Collection[str]) -> list[str]:
    """Keys that begin with a dot, or are the end of a name of nearly every model, cut in the middle of a word."""
    return [key for key in keys if key.startswith(".") or (len(key) >= _TELLING and key in _ENDS)]


_ENDS = frozenset(
    leaf[start:]
    for leaf in _LEAVES
    for start in range(1, len(leaf) - _TELLING + 1)
    if leaf[start] != "_" and leaf[start - 1] != "_"
)
