"""Weights are quanto or HQQ codes, with scales next to them.

Meaning
    quanto keeps ``weight._data`` (integers or small floats; below eight bits several to a byte, with ``weight._shift``)
    and ``weight._scale``, and next to the weight ``input_scale`` and ``output_scale``. HQQ keeps ``W_q`` (several
    numbers to an element) with ``scale`` and ``zero`` for groups, and how they were packed: ``nbits``, ``group_size``,
    ``shape``, ``axis``, ``packing`` and more.

Why it matters
    A plain layer accepts none of it, and codes that were renamed to a weight would load, and the model would produce
    nonsense. So no repair renames them.

Symptoms
    Missing key(s) in state_dict: "fc.weight".
    Unexpected key(s) in state_dict: "fc.weight._data", "fc.weight._scale", "fc.input_scale", "fc.output_scale".
    Unexpected key(s) in state_dict: "fc.W_q", "fc.nbits", "fc.group_size", "fc.scale", "fc.zero", …

Detection
    ``_data`` and ``_scale`` below the name of a weight; an integer ``W_q`` (or one with ``nbits``) next to ``scale``
    and ``zero``. By itself such a file is correct, and the finding only names what opens it; an error where a target
    has the plain weight.

Repair
    None: load it with the library that wrote it, which can also dequantise it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.quantization import HQQ, Layer
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Repair
from ckptdoctor.rules.messages import CHECK
from ckptdoctor.rules.quantization.plain_side import Words, quantized_problems
from ckptdoctor.rules.signs import Sign, leaf_among
from ckptdoctor.rules.when import quantized_keys

_PLAIN: dict[str, object] = {"fc.weight": T((8, 16)), "fc.bias": T((8,)), "norm.weight": T((16,))}
_BESIDE: dict[str, object] = {"fc.bias": T((8,)), "norm.weight": T((16,))}
_QUANTO: dict[str, object] = {
    "fc.weight._data": T((8, 16), "int8"),
    "fc.weight._scale": T((8, 1)),
    "fc.input_scale": T(()),
    "fc.output_scale": T(()),
    **_BESIDE,
}
_QUANTO4: dict[str, object] = {
    "fc.weight._data._data": T((64, 1), "uint8"),
    "fc.weight._scale": T((1, 8)),
    "fc.weight._shift": T((1, 8)),
    "fc.input_scale": T(()),
    "fc.output_scale": T(()),
    **_BESIDE,
}
_HQQ: dict[str, object] = {
    "fc.W_q": T((64, 1), "uint8"),
    "fc.scale": T((8, 1)),
    "fc.zero": T((8, 1)),
    "fc.nbits": T((), "int32"),
    "fc.group_size": T((), "int32"),
    "fc.shape": T((2,), "int64"),
    "fc.axis": T((), "int32"),
    "fc.packing": T((7,), "uint8"),
    **_BESIDE,
}
_HQQ_PARTS = leaf_among("W_q|scale|zero|nbits|group_size|shape|axis|packing")
SIGNS = (
    Sign(
        "the weights are quantised by quanto, which keeps the numbers and their scales apart; a plain model cannot hold"
        " them",
        Repair.NONE,
        (CHECK,),
        unexpected=leaf_among(r"weight\._(?:data|scale|shift)(?:\._data)?"),
    ),
    Sign(
        "quanto keeps the scales of activations next to the weights that it has quantised",
        Repair.NONE,
        (CHECK,),
        unexpected=leaf_among("input_scale|output_scale"),
        beside=("weight._data", "weight._data._data"),
    ),
    Sign(
        "the weights are quantised by HQQ; a plain model cannot hold them",
        Repair.NONE,
        (CHECK,),
        unexpected=_HQQ_PARTS,
        beside=("W_q",),
    ),
    Sign(
        "the model was built for weights quantised by HQQ, and the file does not hold them; no command makes them",
        Repair.NONE,
        (CHECK,),
        missing=_HQQ_PARTS,
        beside=("W_q",),
    ),
)
SICK = (
    Example("a quanto file", _QUANTO, "safetensors", suffix=".safetensors"),
    Example("an HQQ file", _HQQ, "safetensors", suffix=".safetensors"),
    Example("quanto for a plain model", _QUANTO, like=_PLAIN),
    Example("4-bit quanto for a plain model", _QUANTO4, like=_PLAIN),
    Example("HQQ for a plain model", _HQQ, like=_PLAIN),
    Example("plain weights for HQQ", _PLAIN, like=_HQQ),
)
HEALTHY = (
    Example("plain weights", _PLAIN),
    Example("a target with the same quantisation", _QUANTO, like=_QUANTO),
    Example("queries with such a name", {"attn.W_q": T((8, 8)), "attn.W_k": T((8, 8)), "attn.scale": T((1,))}),
)


@rule("Q960", "quanto-hqq", Severity.ERROR, when=quantized_keys)
def quanto_hqq(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report layers of quanto and HQQ."""
    yield from quantized_problems(subject, _WORDS)


def _one(layer: Layer) -> str:
    if layer.scheme == HQQ:
        return HQQ
    if not layer.bits:
        return "quanto, several numbers to a byte"
    return f"quanto, {layer.kind}, {'a scale for each output' if layer.block == (1, 0) else 'one scale each'}"


_WORDS = Words(
    code="Q960",
    cause="The weights are codes with scales next to them; only the layers of the library that wrote them can read "
    "them.",
    opens="Open it with the library that wrote it: optimum-quanto (weight._data, weight._scale), or hqq (W_q).",
    one=_one,
)
