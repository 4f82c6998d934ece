"""Reads how a Hugging Face checkpoint is quantised from the files next to it, which may be wrong about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.weights import top_weights
from ckptdoctor.facts.quantization import (
    AWQ,
    BNB4,
    BNB8,
    FLOAT8,
    GPTQ,
    MXFP4,
    NVFP4,
    PACKED,
    SCALED,
    Layer,
    quantized_in,
)
from ckptdoctor.facts.siblings import Config, config_beside, folder_of
from ckptdoctor.noun import noun

# configs of their own, as the libraries that quantise write them (AutoGPTQ, AutoAWQ, ModelOpt)
_OWN = frozenset({"quantize_config.json", "quant_config.json", "hf_quant_config.json"})
_FIELDS = ("quantization_config", "compression_config")


def config_lacks_it(checkpoint: Checkpoint) -> str:
    """Return the path of the ``config.json`` that does not say that the checkpoint is quantised; else ""."""
    config = config_beside(checkpoint)
    if config is None or any(field in config.fields for field in _FIELDS):
        return ""
    return "" if not _OWN.isdisjoint(folder_of(checkpoint.path).names) else config.path


# what each method that transformers and vLLM know of writes (quantizers/auto.py, QuantizationMethod)
_WRITTEN: Mapping[str, tuple[str, ...]] = {
    "gptq": (GPTQ,),
    "awq": (AWQ,),
    "bitsandbytes": (BNB4, BNB8),
    "fp8": (SCALED,),
    "mxfp4": (MXFP4,),
    "modelopt": (SCALED, NVFP4),
    "compressed-tensors": (SCALED, PACKED, NVFP4),
}
# where one of these is there, layers differ, or lie in memory in an order of their own
_OTHERWISE = ("dynamic", "checkpoint_format", "is_marlin_format", "modules_in_block_to_quantize")
_USUAL_FORMATS = (None, "gptq", "gptq_v2")


@noun
class QuantizationConfigDisagreement:
    """A field of ``quantization_config``, what it says, and what the tensors say; ``layer`` is one that shows it."""

    config: Config
    name: str
    said: object
    found: object
    layer: Layer | None = None


def disagreement(checkpoint: Checkpoint) -> QuantizationConfigDisagreement | None:
    """Return where the config next to the weights describes another way of quantising than theirs."""
    config, weights = config_beside(checkpoint), top_weights(checkpoint)
    told = config.fields.get("quantization_config") if config is not None else None
    if config is None or weights is None or not isinstance(told, dict):
        return None
    method, layers = told.get("quant_method"), quantized_in(weights).layers
    expected = _WRITTEN.get(method) if isinstance(method, str) else None
    if expected is None:
        return None
    if not layers:
        # bitsandbytes quantises plain weights when it loads them, and so do others where the weights are float8
        plain = not any(tensor.dtype.name in (*FLOAT8, "int8", "uint8", "int32") for tensor in weights.tensors)
        packs = method in ("gptq", "awq", "mxfp4", "compressed-tensors") and bool(weights.tensors)
        return QuantizationConfigDisagreement(config, "quant_method", method, None) if plain and packs else None
    mine = [layer for layer in layers if layer.scheme in expected]
    if not mine:
        return QuantizationConfigDisagreement(config, "quant_method", method, layers[0].scheme, layers[0])
    return _numbers(config, told, method, mine)


def _numbers(
    config: Config, told: Mapping[str, object], method: object, layers: Sequence[Layer]
) -> QuantizationConfigDisagreement | None:
    """Return bits, the size of groups and blocks: what most layers have, where all of them are alike."""
    usual = told.get("checkpoint_format") in _USUAL_FORMATS and not any(told.get(name) for name in _OTHERWISE[:1])
    if method in ("gptq", "awq") and usual:
        (bits, count), *_ = Counter(layer.bits for layer in layers).most_common(1)
        said = told.get("bits", told.get("w_bit"))
        if type(said) is int and bits and count == len(layers) and said != bits:
            return QuantizationConfigDisagreement(config, "bits" if "bits" in told else "w_bit", said, bits, layers[0])
        return _group(config, told, layers)
    wanted = told.get("weight_block_size")
    if method == "fp8" and isinstance(wanted, list) and len(wanted) == 2:
        for layer in layers:
            if layer.block and layer.shape is not None and not _fits(layer, wanted):
                sides = [block or size for block, size in zip(layer.block, layer.shape[-2:], strict=True)]
                return QuantizationConfigDisagreement(config, "weight_block_size", wanted, sides, layer)
    return None


def _group(
    config: Config, told: Mapping[str, object], layers: Sequence[Layer]
) -> QuantizationConfigDisagreement | None:
    name = "group_size" if "group_size" in told else "q_group_size"
    said = told.get(name)
    if type(said) is not int:
        return None
    for layer in layers:
        if not layer.block or layer.shape is None:
            continue
        size, inputs = layer.block[1], layer.shape[1]
        alike = size == 0 if said in (-1, 0) else (size or inputs) == min(said, inputs)
        if not alike:
            return QuantizationConfigDisagreement(config, name, said, size or -1, layer)
    return None


def _fits(layer: Layer, wanted: Sequence[object]) -> bool:
    """Return whether blocks of this size give the scales that there are: a side that one block covers says nothing."""
    shape = layer.shape or ()
    for side, size, block in zip(wanted, shape[-2:], layer.block, strict=True):
        if type(side) is not int or side < 1:
            return True
        if (block or size) != min(side, size) and not (block == 0 and size <= side):
            return False
    return True
