"""The ``quantization_config`` next to the weights does not describe their quantisation.

Meaning
    ``quant_method``, ``bits``, the size of groups or of blocks in ``config.json`` are not those that the tensors have:
    it is the config of another export, or somebody changed one of the two.

Why it matters
    Bits and groups are not in any tensor: layers are built from the config, and misread the packed numbers. Where the
    sizes happen to fit, the model produces nonsense; where they do not, loading fails.

Symptoms
    size mismatch for model.layers.0.self_attn.q_proj.scales
    Or nothing, and nonsense in the answers.

Detection
    The names and shapes of the quantised tensors show the scheme, bits and groups; they are compared with the config.
    Nothing is reported where the config gives layers different settings, nor about unknown schemes.

Repair
    None: the finding gives the text to write into ``config.json`` if the tensors are right. Or it is the config of
    another export: then use the one that belongs to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.quantization.config import QuantizationConfigDisagreement, disagreement
from ckptdoctor.rules.when import file_beside

_NAME = "model.safetensors"
_GPTQ: dict[str, object] = {
    "fc.qweight": T((32, 64), "int32"),
    "fc.qzeros": T((2, 8), "int32"),
    "fc.scales": T((2, 64), "float16"),
    "fc.g_idx": T((256,), "int32"),
}
_FP8: dict[str, object] = {
    "fc.weight": T((256, 512), "float8_e4m3fn"),
    "fc.weight_scale_inv": T((2, 4)),
}
_PLAIN: dict[str, object] = {"fc.weight": T((64, 256), "float16")}


def _example(title: str, contents: dict[str, object], **config: object) -> Example:
    beside = {"config.json": json.dumps({"quantization_config": config}).encode()}
    return Example(title, contents, "safetensors", metadata={"format": "pt"}, name=_NAME, beside=beside)


SICK = (
    _example("a different method", _GPTQ, quant_method="awq", bits=4, group_size=128),
    _example("other bits", _GPTQ, quant_method="gptq", bits=8, group_size=128),
    _example("other groups", _GPTQ, quant_method="gptq", bits=4, group_size=64),
    _example("other blocks", _FP8, quant_method="fp8", weight_block_size=[64, 64]),
    _example("plain weights", _PLAIN, quant_method="gptq", bits=4, group_size=128),
)
HEALTHY = (
    _example("correct GPTQ", _GPTQ, quant_method="gptq", bits=4, group_size=128),
    _example("correct float8", _FP8, quant_method="fp8", weight_block_size=[128, 128]),
    _example("plain weights that are quantised later", _PLAIN, quant_method="bitsandbytes", load_in_4bit=True),
    _example("layers that differ", _GPTQ, quant_method="gptq", bits=8, group_size=128, dynamic={"fc": {"bits": 4}}),
    _example("an unknown method", _GPTQ, quant_method="new"),
)  # fmt: skip


@rule("Q959", "quantization-config-disagrees", Severity.ERROR, when=file_beside("config.json"))
def quantization_config_disagrees(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report a config of another way of quantising."""
    found = disagreement(checkpoint)
    if found is not None:
        yield _problem(found)


def _problem(found: QuantizationConfigDisagreement) -> Problem:
    said = f"config.json has {found.name} {json.dumps(found.said)} in quantization_config"
    take = f"use the config that belongs to them, or the weights that belong to {found.config.path}"
    if found.layer is None:
        message, advice = f"{said}, but the weights are plain", f"Remove quantization_config, or {take}."
    else:
        key = found.layer.key
        shown = found.found if found.name == "quant_method" else json.dumps(found.found)
        message = f"{said}, but {key} is {shown}" if found.name == "quant_method" else f"{said}, but {key} has {shown}"
        change = (
            "" if found.name == "quant_method" else f'if the weights are right, write "{found.name}": {shown}; if not, '
        )
        advice = f"{change}{take}."
        advice = f"{advice[0].upper()}{advice[1:]}"
    return Problem(
        message=message,
        cause="Layers are built from the config, and misread the packed numbers: loading fails, or the model "
        "produces nonsense.",
        advice=advice,
        keys=tuple([(key,) for key in found.layer.keys]) if found.layer is not None else (),
    )
