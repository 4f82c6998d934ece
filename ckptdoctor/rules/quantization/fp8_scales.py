"""Weights are float8, int8 or four-bit numbers that are meaningless without their scales.

Meaning
    DeepSeek and models like it keep ``weight`` as float8 and ``weight_scale_inv``, a factor for each block of 128 by
    128 numbers (despite its name the weight is multiplied by it); compressed-tensors and ModelOpt keep
    ``weight_scale``, one for the tensor or for each row, and ``input_scale`` for the activations; ComfyUI calls them
    ``scale_weight`` and ``scale_input``. With four bits (NVFP4, MXFP4, packed integers) several numbers share a byte.

Why it matters
    float8 weights have their usual shape, and torch casts them: a plain layer that accepts them with ``strict=False``
    computes garbage, because the factors are silently left out.

Symptoms
    Unexpected key(s) in state_dict: "fc.weight_scale_inv".
    Missing key(s) in state_dict: "fc.weight_scale_inv".

Detection
    Keys that end with ``_scale_inv``, ``_scale`` or ``scale_weight`` next to a float8 or int8 weight; the shapes show
    the block. By itself such a file is exactly what its library writes, and the finding only names what opens it. A
    warning where the ``config.json`` next to it has no ``quantization_config``, an error where a target has the plain
    weight.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER --unsafe-fixes`` computes the plain weights of float8 and int8: each
    number times the factor of its block, in float64 and rounded once to the target's dtype; scales of activations are
    dropped. Weights with zero points, and four-bit weights, are left to the library that wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.quantization import SCALED, Layer
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Repair
from ckptdoctor.rules.messages import CHECK, NO_PLACE, NOT_QUANTISED, unknown_key
from ckptdoctor.rules.quantization.dequantizing import dequantize_fix
from ckptdoctor.rules.quantization.plain_side import Words, quantized_problems
from ckptdoctor.rules.signs import Sign, leaf_among
from ckptdoctor.rules.when import quantized_keys

_PLAIN: dict[str, object] = {"fc.weight": T((256, 384), "bfloat16"), "norm.weight": T((4,), "bfloat16")}
_DEEPSEEK: dict[str, object] = {
    "fc.weight": T((256, 384), "float8_e4m3fn"),
    "fc.weight_scale_inv": T((2, 3)),
    "norm.weight": T((4,), "bfloat16"),
}
_CHANNELS: dict[str, object] = {
    "fc.weight": T((256, 384), "float8_e4m3fn"),
    "fc.weight_scale": T((256, 1), "bfloat16"),
    "fc.input_scale": T((1,), "bfloat16"),
    "norm.weight": T((4,), "bfloat16"),
}
_NVFP4: dict[str, object] = {
    "fc.weight": T((256, 192), "uint8"),
    "fc.weight_scale": T((256, 24), "float8_e4m3fn"),
    "fc.weight_scale_2": T(()),
    "fc.input_scale": T(()),
    "norm.weight": T((4,), "bfloat16"),
}
MESSAGES = (
    *unknown_key(
        r"[\w.]{0,300}?(?:weight_scale|weight_scale_inv|input_scale|weight_scale_2|weight_packed|weight_global_scale"
        r"|input_global_scale|[kvq]_scale|kv_scale|weight_shape|weight_zero_point|deq_scale|quant_bias|input_offset)",
        f"the file has scales of quantised weights ({{key}}), and {NO_PLACE}: {NOT_QUANTISED}",
        also=("R002", "Q953"),
    ),
)
SIGNS = (
    Sign(
        "the model was built for weights of 8 bits (int8_weight, with a scale), and the file does not hold "
        "them: it is not quantised, or quantised differently; no command makes them",
        Repair.NONE,
        (CHECK,),
        missing=leaf_among("int8_weight|scale"),
        beside=("int8_weight",),
        general=2,
    ),
    Sign(
        "the weights are float8 with scales of their own; a plain cast would lose the scales",
        Repair.NONE,
        (CHECK,),
        unexpected=leaf_among("weight_scale|weight_scale_inv|input_scale"),
        general=3,
    ),
    Sign(
        "the model was built for float8 weights with scales of their own, and the file does not hold these scales; no"
        " command makes them",
        Repair.NONE,
        (CHECK,),
        missing=leaf_among("weight_scale|weight_scale_inv"),
        general=3,
    ),
)
SICK = (
    Example("float8 in blocks", _DEEPSEEK, "safetensors", suffix=".safetensors"),
    Example("float8 in blocks for a plain model", _DEEPSEEK, "safetensors", suffix=".safetensors", like=_PLAIN),
    Example("float8 by rows for a plain model", _CHANNELS, "safetensors", suffix=".safetensors", like=_PLAIN),
    Example("NVIDIA's four bits for a plain model", _NVFP4, "safetensors", suffix=".safetensors", like=_PLAIN),
    Example("plain weights for float8", _PLAIN, "safetensors", suffix=".safetensors", like=_DEEPSEEK),
)
HEALTHY = (
    Example("plain weights", _PLAIN),
    Example("a target with the same quantisation", _DEEPSEEK, "safetensors", suffix=".safetensors", like=_DEEPSEEK),
    Example("a scale of a layer that is not quantised", {"fc.weight": T((4, 4)), "fc.weight_scale": T((4,))}),
)


@rule("Q956", "fp8-scales", Severity.WARNING, when=quantized_keys)
def fp8_scales(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report layers whose numbers need a scale."""
    yield from quantized_problems(subject, _WORDS)


def _one(layer: Layer) -> str:
    if layer.scheme != SCALED:
        return layer.kind
    if not layer.block:
        return f"{layer.kind} with scales of an unknown layout"
    rows, columns = layer.block
    if (rows, columns) == (0, 0):
        return f"{layer.kind}, one scale for each weight"
    if (rows, columns) == (1, 0):
        return f"{layer.kind}, a scale for each row"
    sizes = [str(size) if size else "all" for size in (rows, columns)]
    return f"{layer.kind}, a scale for each block of {sizes[0]} × {sizes[1]}"


_WORDS = Words(
    code="Q956",
    cause="Each number has to be multiplied by the scale of its block; only layers with these scales do that.",
    opens="Open it with vLLM or SGLang, or with transformers' from_pretrained (compressed-tensors installed, where its "
    "config says so).",
    one=_one,
    fix=dequantize_fix,
)
