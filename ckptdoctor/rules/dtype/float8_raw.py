"""Weights are float8, and there are no scales with them.

Meaning
    They were cast, as ComfyUI's and diffusers' float8 files are: the numbers are the weights, rounded to a few bits. In
    a model that was quantised in blocks (DeepSeek, compressed-tensors) the scales are missing.

Why it matters
    Hardly any operation of torch computes in float8: cast them to bfloat16 when they are used, which loses nothing.
    Without scales, weights of a quantised model are garbage.

Symptoms
    mat1 and mat2 must have the same dtype, but got Float and Float8_e4m3fn
    expected m1 and m2 to have the same dtype, but got: float != c10::Float8_e4m3fn

Detection
    Matrices of float8 in a model without anything that looks like a scale: those with scales are Q956. A warning where
    the ``config.json`` next to it has a ``quantization_config``, and the file is not one of several.

Repair
    None is needed for weights that were cast: ``--dtype bfloat16`` and ``model.to(torch.bfloat16)`` are exact. Only the
    source has the missing scales.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, StateDict, Tensor
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.facts.quantization import FLOAT8, quantized_in
from ckptdoctor.facts.siblings import config_beside, is_shard
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import dtype_begins
from ckptdoctor.wording import listed

_WEIGHTS: dict[str, object] = {"fc.weight": T((8, 8), "float8_e4m3fn"), "fc.bias": T((8,), "bfloat16")}
SICK = (
    Example("weights that were cast", _WEIGHTS),
    Example(
        "scales that are missing", _WEIGHTS, "safetensors", ".safetensors", metadata={"format": "pt"},
        name="model.safetensors", beside={"config.json": b'{"quantization_config": {"quant_method": "fp8"}}'},
    ),
)  # fmt: skip
HEALTHY = (
    Example("bfloat16", {"fc.weight": T((8, 8), "bfloat16")}),
    Example("scales next to them", {**_WEIGHTS, "fc.weight_scale": T(())}),
    Example("scales of an unknown library", {**_WEIGHTS, "fc.amax_scale": T(())}),
)


@rule("T556", "float8-raw", Severity.INFO, when=dtype_begins("float8"))
def float8_raw(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report models with float8 and no scales."""
    for state_dict in weights_among(checkpoint.state_dicts):
        found = [each for each in state_dict.tensors if each.dtype.name in FLOAT8 and len(each.shape) > 1]
        if found and not quantized_in(state_dict).layers and not any("scale" in key for key in state_dict.keys):
            yield _problem(state_dict, found, _says_quantised(checkpoint, state_dict))


def _says_quantised(checkpoint: Checkpoint, state_dict: StateDict) -> bool:
    config = config_beside(checkpoint) if not state_dict.path and not is_shard(checkpoint.path) else None
    return config is not None and "quantization_config" in config.fields


def _problem(state_dict: StateDict, found: Sequence[Tensor], quantised: bool) -> Problem:
    total = wording.plural(len(state_dict.tensors), "tensor")
    kind = "Float8" + found[0].dtype.name.removeprefix("float8")
    names = listed(list(dict.fromkeys([each.dtype.name for each in found])))
    place, verb = wording.of_place(state_dict.path), "is" if len(found) == 1 else "are"
    return Problem(
        message=f"{len(found):,} of {total}{place} {verb} {names}, without scales",
        cause="config.json says that the model is quantised: the numbers are meaningless without their scales."
        if quantised
        else "They were cast: the numbers are the weights, rounded. Hardly any operation computes in float8.",
        torch_says=(f"mat1 and mat2 must have the same dtype, but got Float and {kind}",),
        advice="The scales are missing: download the file from its source again."
        if quantised
        else "Cast when they are used: model.to(torch.bfloat16) is exact.",
        keys=tuple([each.path for each in found]),
        location=Location(path=state_dict.path),
        severity=Severity.WARNING if quantised else Severity.INFO,
    )
