"""Weights are integers, and the file does not show what they mean.

Meaning
    The numbers are those of a quantised layer whose scale is not in the file, or a float weight was cast to an integer
    and lost its fractions.

Why it matters
    ``load_state_dict`` silently copies them into float parameters, and the model computes with numbers from -128 to
    127. With ``assign=True`` torch rejects them.

Symptoms
    Only Tensors of floating point and complex dtype can require gradients
    Or garbage, without an error.

Detection
    Matrices called ``weight`` of int8, uint8 and other integers, in a module without another key that looks like a
    scale, a zero point or a code book: the rules about quantisation report known quantised layers.

Repair
    None: the scales are not in this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, StateDict, Tensor
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.facts.quantization import quantized_in
from ckptdoctor.findings import Location, Severity
from ckptdoctor.regex import regex
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import integer_matrices

_INTEGERS = ("int", "uint")
_MEANING = regex(r"scale|zero|absmax|scb|quant|lut|code|biases|packed|g_idx|perm|bits|shape|format", re.IGNORECASE)
SICK = (
    Example("int8 without a scale", {"fc.weight": T((8, 8), "int8"), "fc.bias": T((8,))}),
    Example("an integer model", {"model": {"a.weight": T((8, 8), "uint8"), "b.weight": T((4, 8), "uint8")}}),
)
HEALTHY = (
    Example("floats", {"fc.weight": T((8, 8)), "fc.bias": T((8,)), "n": T((4, 4), "int64")}),
    Example("int8 with a scale", {"fc.weight": T((8, 8), "int8"), "fc.weight_scale": T((8,))}),
    Example("a scale of an unknown library", {"fc.weight": T((8, 8), "uint32"), "fc.scales": T((8,))}),
    Example("an index table", {"table": T((8, 8), "int32"), "weight": T((8,), "int64")}),
)


@rule("T557", "integer-weights", Severity.WARNING, when=integer_matrices)
def integer_weights(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report models with integers for weights."""
    for state_dict in weights_among(checkpoint.state_dicts):
        suspects = [each for each in state_dict.tensors if _is_suspect(each)]
        found = _unexplained(state_dict, suspects) if suspects else []
        if found:
            yield _problem(state_dict, found)


def _is_suspect(tensor: Tensor) -> bool:
    if tensor.dtype.kind not in _INTEGERS or len(tensor.shape) < 2 or tensor.numel < 16:
        return False
    return tensor.key.rpartition(".")[2] == "weight" and tensor.subclass is None and not tensor.parts


def _unexplained(state_dict: StateDict, suspects: Sequence[Tensor]) -> list[Tensor]:
    """Return those of modules in which nothing else could be a scale."""
    known = {key for layer in quantized_in(state_dict).layers for key in layer.keys}
    explained = {key.rpartition(".")[0] for key in (*state_dict.keys, *state_dict.others) if _MEANING.search(key)}
    # what hangs below a weight, as "fc.weight.absmax" does, has its name for a module
    return [
        each
        for each in suspects
        if each.key not in known and each.key not in explained and each.key.rpartition(".")[0] not in explained
    ]


def _problem(state_dict: StateDict, found: Sequence[Tensor]) -> Problem:
    kinds = wording.listed(sorted({each.dtype.name for each in found}))
    which = f'"{found[0].key}"' if len(found) == 1 else wording.plural(len(found), "weight")
    return Problem(
        message=f"{which}{wording.of_place(state_dict.path)} {'is' if len(found) == 1 else 'are'} {kinds}, without a "
        "scale",
        cause="load_state_dict silently copies the integers into float parameters, and the model computes with "
        "them as they are.",
        torch_says=("Only Tensors of floating point and complex dtype can require gradients",),
        advice="If it was quantised, the scales are in another file, or were lost: check where it came from.",
        keys=tuple([each.path for each in found]),
        location=Location(path=state_dict.path),
    )
