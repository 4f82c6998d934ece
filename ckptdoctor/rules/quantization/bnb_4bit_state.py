"""Weights are packed by bitsandbytes with 4 bits each (NF4 or FP4), with their scales under names of their own.

Meaning
    ``Linear4bit`` keeps two numbers in a byte of ``weight``, which therefore has the shape [N, 1], and next to it
    ``absmax`` (a scale for each block), ``quant_map`` (the 16 values that four bits stand for) and ``quant_state``, a
    piece of JSON as bytes with the shape. With double quantisation ``absmax`` is quantised itself, and
    ``nested_absmax`` and ``nested_quant_map`` undo that.

Why it matters
    A plain layer accepts none of it. With ``strict=False`` all these weights are silently left out.

Symptoms
    Unexpected key(s) in state_dict: "fc.weight.absmax", "fc.weight.quant_map",
    "fc.weight.quant_state.bitsandbytes__nf4".
    size mismatch for fc.weight: copying a param with shape torch.Size([8388608, 1]) from checkpoint, …

Detection
    Keys that end with ``.quant_state.bitsandbytes__nf4`` or ``__fp4``. By itself such a file is exactly what
    bitsandbytes writes, and the finding only names what opens it. A warning where the ``config.json`` next to it has no
    ``quantization_config``, an error where a target has the plain weight.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER --unsafe-fixes`` computes the plain weights: the value of each four bits
    times the scale of its block, in float64 and rounded once to the target's dtype. The precision lost in quantising is
    not recovered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.quantization import Layer
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.pairs import Shape
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, both_shapes, judges
from ckptdoctor.rules.messages import CHECK, CONFIG_BESIDE, SEE, Message, Way, unknown_key
from ckptdoctor.rules.quantization.dequantizing import dequantize_fix
from ckptdoctor.rules.quantization.plain_side import Words, quantized_problems
from ckptdoctor.rules.signs import Sign
from ckptdoctor.rules.when import quantized_keys

_PLAIN: dict[str, object] = {"fc.weight": T((64, 32)), "fc.bias": T((64,))}
_NF4: dict[str, object] = {
    "fc.weight": T((1024, 1), "uint8"),
    "fc.bias": T((64,)),
    "fc.weight.absmax": T((32,)),
    "fc.weight.quant_map": T((16,)),
    "fc.weight.quant_state.bitsandbytes__nf4": T((80,), "uint8"),
}
_NESTED = {
    **_NF4,
    "fc.weight.absmax": T((32,), "uint8"),
    "fc.weight.nested_absmax": T((1,)),
    "fc.weight.nested_quant_map": T((256,)),
}
MESSAGES = (
    Message(
        ("Supplied state dict for",),
        "the configuration says that the weights are packed to 4 bits by bitsandbytes, and {key} has none of "
        "the parts of that (absmax, quant_state): config.json and weights belong to different models",
        (CONFIG_BESIDE,),
        then=r"(?P<key>[\w.]{1,300}?)doesnotcontain`bitsandbytes__",
        also=("M974",),
    ),
    *unknown_key(
        r"[\w.]{1,300}?\.(?:absmax|quant_map|nested_absmax|nested_quant_map|quant_state[\w.]{0,60})",
        "the file has weights packed to 4 bits by bitsandbytes ({key}), and the program does not know that it is"
        " quantised",
        (Way("with vLLM", "vllm serve FOLDER --load-format bitsandbytes --quantization bitsandbytes"), CHECK),
    ),
)
SIGNS = (
    Sign(
        "the weights are packed to 4 bits by bitsandbytes; a plain model cannot hold them, and strict=False would load"
        " nonsense",
        Repair.NONE,
        (CHECK,),
        unexpected=r".*\.(?:absmax|quant_map|nested_absmax|nested_quant_map|quant_state\..*)",
        general=2,
    ),
)
SICK = (
    Example("a file of nf4 weights", _NF4, "safetensors", suffix=".safetensors"),
    Example("double quantisation", {"model": _NESTED}),
    Example("nf4 without a matching config", _NF4, "safetensors", name="model.safetensors",
            beside={"config.json": b'{"model_type": "llama"}'}),
)  # fmt: skip
HEALTHY = (
    Example("plain weights", _PLAIN),
    Example("a target with the same quantisation", _NF4, like=_NF4),
)


@rule("Q951", "bnb-4bit-state", Severity.ERROR, when=quantized_keys)
def bnb_4bit_state(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report layers of bitsandbytes with four bits."""
    yield from quantized_problems(subject, _WORDS)


def _one(layer: Layer) -> str:
    block = f", blocks of {layer.block[0]}" if layer.block else ""
    nested = ", double quantised" if "nested_absmax" in layer.parts else ""
    return f"bitsandbytes {layer.kind}{block}{nested}"


def _config(layers: Sequence[Layer]) -> str:
    import json  # only where there is something to say

    return json.dumps(
        {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "bnb_4bit_quant_type": layers[0].kind,
            "bnb_4bit_use_double_quant": "nested_absmax" in layers[0].parts,
        }
    )


_WORDS = Words(
    code="Q951",
    cause="bitsandbytes keeps two weights in a byte, and scales under names that only its own layers (Linear4bit) "
    "have.",
    opens="Open it with transformers' from_pretrained, with bitsandbytes installed; peft, vLLM and diffusers read it "
    "as well.",
    one=_one,
    config=_config,
    fix=dequantize_fix,
)


@judges(Turn.SHAPE, general=1)
def of_a_shape(rest: IncompatibleKeys) -> Iterator[Cause]:
    """One shape is the bytes of the other in 4 bits: a column, two values a byte."""
    pairs = rest.mismatched
    found = [pair for pair in pairs if _packed(pair.here, pair.there) or _packed(pair.there, pair.here)]
    if found:
        meaning = (
            f"a weight is packed to 4 bits by bitsandbytes only on one side ({both_shapes(found[0])}): a plain model"
        )
        keys = [pair.key for pair in found]
        yield Cause(f"{meaning} cannot hold it", Repair.BY_HAND, (SEE,), mismatched=keys)


def _packed(here: Shape, there: Shape) -> bool:
    return len(here) == 2 and here[1] == 1 and len(there) >= 2 and there[1] != 1 and 2 * here[0] == prod(there)
