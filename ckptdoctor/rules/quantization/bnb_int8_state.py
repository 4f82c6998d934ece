"""Weights are bitsandbytes int8 numbers (LLM.int8), with a scale for each row as ``SCB``.

Meaning
    ``Linear8bitLt`` keeps ``weight`` as int8, the largest absolute value of each row in ``SCB``, and in
    ``weight_format`` the layout of the rows (0: as in any matrix).

Why it matters
    The weight has its usual shape, so a plain layer accepts it: with ``strict=False`` integers up to 127 silently
    become the weights.

Symptoms
    Unexpected key(s) in state_dict: "fc.SCB", "fc.weight_format".

Detection
    Keys called ``SCB`` next to an int8 ``weight``. By itself such a file is exactly what bitsandbytes writes, and the
    finding only names what opens it. A warning where the ``config.json`` next to it has no ``quantization_config``, an
    error where a target has the plain weight.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER --unsafe-fixes`` computes the plain weights: ``weight * SCB / 127``, in
    float64 and rounded once to the target's dtype. Rows in any other layout are refused. The precision lost in
    quantising is not recovered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.quantization import Layer
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Repair
from ckptdoctor.rules.messages import CHECK, unknown_key
from ckptdoctor.rules.quantization.dequantizing import dequantize_fix
from ckptdoctor.rules.quantization.plain_side import Words, quantized_problems
from ckptdoctor.rules.signs import Sign, leaf_among
from ckptdoctor.rules.when import quantized_keys

_PLAIN: dict[str, object] = {"fc.weight": T((6, 4), "float16"), "fc.bias": T((6,), "float16")}
_INT8: dict[str, object] = {
    "fc.weight": T((6, 4), "int8", value=3),
    "fc.bias": T((6,), "float16"),
    "fc.SCB": T((6,), value=2.0),
    "fc.weight_format": T((), "uint8", value=0),
}
MESSAGES = (
    *unknown_key(
        r"[\w.]{1,300}?\.(?:SCB|weight_format)",
        "the file has 8-bit bitsandbytes weights ({key}), and the program expects plain ones: load the model "
        "in full precision, and then merge and save it",
    ),
)
SIGNS = (
    Sign(
        "the weights are 8-bit bitsandbytes integers; a plain model cannot hold them",
        Repair.NONE,
        (CHECK,),
        unexpected=leaf_among("SCB|weight_format"),
        general=2,
    ),
    Sign(
        "the model was built for 8-bit bitsandbytes integers (SCB), and the file does not hold them; no "
        "command makes them",
        Repair.NONE,
        (CHECK,),
        missing=leaf_among("SCB|weight_format"),
        general=2,
    ),
)
SICK = (
    Example("a file of int8 weights", _INT8, "safetensors", suffix=".safetensors"),
    Example("int8 weights for a plain model", _INT8, like=_PLAIN),
    Example("the same nested", {"model": _INT8}, like={"model": _PLAIN}),
    Example("plain weights for an int8 model", _PLAIN, like=_INT8),
)
HEALTHY = (
    Example("plain weights", _PLAIN),
    Example("a target with the same quantisation", _INT8, like=_INT8),
    Example("int8 without scales", {"fc.weight": T((6, 4), "int8")}),
)


@rule("Q952", "bnb-int8-state", Severity.ERROR, when=quantized_keys)
def bnb_int8_state(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report layers of bitsandbytes with eight bits."""
    yield from quantized_problems(subject, _WORDS)


def _one(layer: Layer) -> str:
    return "bitsandbytes int8, a scale for each row" if "weight" in layer.parts else "int8 scales without weights"


def _config(layers: Sequence[Layer]) -> str:
    return '{"quant_method": "bitsandbytes", "load_in_8bit": true}'


_WORDS = Words(
    code="Q952",
    cause="bitsandbytes keeps weights as int8, and the scale of each row as SCB, which only its own layers "
    "(Linear8bitLt) have.",
    opens="Open it with transformers' from_pretrained, with bitsandbytes installed.",
    one=_one,
    config=_config,
    fix=dequantize_fix,
)
