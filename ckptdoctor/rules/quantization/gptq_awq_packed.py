"""Weights are packed into int32 by GPTQ or AWQ, with scales and zeros for groups of inputs.

Meaning
    Instead of ``weight`` a layer has ``qweight`` (several numbers in each int32), ``qzeros``, ``scales`` and, for GPTQ,
    ``g_idx``, the group of each input. GPTQ packs along the inputs, AWQ along the outputs. Some versions of AutoGPTQ
    also write a ``bias`` of zeros for layers that have none.

Why it matters
    A plain layer accepts none of it, and a layer built for other bits or groups rejects it: bits and group size are not
    in any tensor, but in ``quantization_config`` of ``config.json`` (or ``quantize_config.json``).

Symptoms
    Missing key(s) in state_dict: "fc.weight".
    Unexpected key(s) in state_dict: "fc.qweight", "fc.qzeros", "fc.scales", "fc.g_idx".

Detection
    Keys called ``qweight`` next to ``scales``. Their shapes show bits and group size; only the values of ``g_idx`` show
    whether groups follow the order of activations (``desc_act``). By itself such a file is correct, and the finding
    only names what opens it. A warning where the ``config.json`` next to it has no ``quantization_config``, an error
    where a target has the plain weight.

Repair
    None: load it with the library that wrote it, which can also dequantise it. The finding gives the
    ``quantization_config`` where it is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.quantization import AWQ, GPTQ, Layer
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Repair
from ckptdoctor.rules.messages import CHECK, NO_PLACE, NOT_QUANTISED, unknown_key
from ckptdoctor.rules.quantization.plain_side import Words, quantized_problems
from ckptdoctor.rules.signs import Sign, leaf_among
from ckptdoctor.rules.when import quantized_keys

_PLAIN: dict[str, object] = {"fc.weight": T((64, 256), "float16"), "fc.bias": T((64,), "float16")}
_GPTQ: dict[str, object] = {
    "fc.qweight": T((32, 64), "int32"),
    "fc.qzeros": T((2, 8), "int32"),
    "fc.scales": T((2, 64), "float16"),
    "fc.g_idx": T((256,), "int32"),
    "fc.bias": T((64,), "float16"),
}
_AWQ: dict[str, object] = {
    "fc.qweight": T((256, 8), "int32"),
    "fc.qzeros": T((2, 8), "int32"),
    "fc.scales": T((2, 64), "float16"),
    "fc.bias": T((64,), "float16"),
}
MESSAGES = (
    *unknown_key(
        r"[\w.]{1,300}?\.(?:qweight|qzeros|g_idx|scales)",
        f"the file has weights packed by GPTQ or AWQ ({{key}}), and {NO_PLACE}: {NOT_QUANTISED}",
    ),
)
SIGNS = (
    Sign(
        "the weights are packed by GPTQ or AWQ; a plain model cannot hold them",
        Repair.NONE,
        (CHECK,),
        unexpected=leaf_among("qweight|qzeros|g_idx|quant_weight"),
        general=2,
    ),
    Sign(
        "the model was built for weights packed by GPTQ or AWQ, and the file lacks their parts: it is not "
        "quantised, or another version of the program quantised it and named them differently; no command "
        "packs weights",
        Repair.NONE,
        (CHECK,),
        missing=leaf_among("qweight|qzeros|g_idx|quant_weight|scales|zeros"),
        beside=("qweight", "qzeros", "g_idx", "quant_weight"),
        general=2,
    ),
)
SICK = (
    Example("a GPTQ file", _GPTQ, "safetensors", suffix=".safetensors"),
    Example("an AWQ file", _AWQ, "safetensors", suffix=".safetensors"),
    Example("GPTQ for a plain model", _GPTQ, like=_PLAIN),
    Example("AWQ for a plain model", _AWQ, like=_PLAIN),
    Example("plain weights for GPTQ", _PLAIN, like=_GPTQ),
    Example("GPTQ without a matching config", _GPTQ, "safetensors", name="model.safetensors",
            beside={"config.json": b'{"model_type": "llama"}'}),
)  # fmt: skip
HEALTHY = (
    Example("plain weights", _PLAIN),
    Example("a target with the same quantisation", _GPTQ, like=_GPTQ),
)


@rule("Q953", "gptq-awq-packed", Severity.ERROR, when=quantized_keys)
def gptq_awq_packed(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report layers of GPTQ and AWQ."""
    yield from quantized_problems(subject, _WORDS)


def _one(layer: Layer) -> str:
    if not layer.bits:
        return f"{layer.scheme} of unknown width"
    group = f"groups of {layer.block[1]}" if layer.block[1] else "one group for each output"
    order = "" if layer.scheme == AWQ else ", with g_idx" if "g_idx" in layer.parts else ", without g_idx"
    return f"{layer.scheme}, {layer.bits} bits, {group}{order}"


def _config(layers: Sequence[Layer]) -> str:
    """Return that of the most common kind of layer."""
    import json  # only where there is something to say

    ((scheme, bits, block), _), *_ = Counter(
        [(layer.scheme, layer.bits, layer.block) for layer in layers]
    ).most_common()
    if not bits:
        return ""
    group = block[1] or -1
    if scheme == GPTQ:
        said = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": False}
        return f"{json.dumps(said)} (desc_act is true where the values of g_idx are not in order)"
    return json.dumps({"quant_method": "awq", "bits": bits, "group_size": group, "zero_point": True, "version": "gemm"})


_WORDS = Words(
    code="Q953",
    cause="The weights are several numbers to an int32, with scales and zeros for groups of inputs; only layers "
    "that are built for the same bits and groups can read them.",
    opens="Open it with transformers' from_pretrained, with gptqmodel installed, or with vLLM.",
    one=_one,
    config=_config,
)
