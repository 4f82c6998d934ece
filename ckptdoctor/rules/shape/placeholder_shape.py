"""Most weights are empty: their values were on other ranks when the file was saved.

Meaning
    With ZeRO stage 3 each rank holds a part of every parameter, and in between the module itself holds a placeholder
    without elements (or with one). ``model.state_dict()`` outside of DeepSpeed's hooks saves placeholders.

Why it matters
    The file does not hold a model. ``load_state_dict`` fails; the values are only in the shards next to it, if
    anywhere.

Symptoms
    size mismatch for model.embed_tokens.weight: copying a param with shape torch.Size([0]) from checkpoint, the shape
    in current model is torch.Size([32000, 4096]).

Detection
    Two of three weights or more (keys that end with ``weight``, except those of norms and activations), and at least
    four, have no elements, or are vectors of one.

Repair
    None: the values are not in the file. Make a complete checkpoint from the shards with ``zero_to_fp32.py``, which
    DeepSpeed puts next to them, and save the next one with ``stage3_gather_16bit_weights_on_model_save``.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.shapes.pairs import Pair
from ckptdoctor.match.shapes.placeholders import Placeholders, is_placeholder, placeholders
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, both_shapes, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import CHECK, Message, Way, Weight
from ckptdoctor.rules.when import placeholder_shapes

_NAMES = ("embed_tokens", "layers.0.q_proj", "layers.0.o_proj", "layers.1.q_proj", "layers.1.o_proj", "lm_head")
MESSAGES = (
    Message(
        (
            "lora_B.default.weight: copying a param with shape torch.Size([0])",
            "lora_A.default.weight: copying a param with shape torch.Size([0])",
        ),
        "the adapter's tensors are empty: DeepSpeed ZeRO-3 keeps the parameters elsewhere, and they were "
        "saved without being gathered. No command recovers them; save again with "
        "stage3_gather_16bit_weights_on_model_save",
        (CHECK,),
        weight=Weight.CAUSE,
        also=("L903",),
    ),
)
SICK = (
    Example(
        "empty weights and intact norms", {**{f"{name}.weight": T((0,)) for name in _NAMES}, "norm.weight": T((4,))}
    ),
    Example("weights of one element", {"module": {f"{name}.weight": T((1,)) for name in _NAMES}}),
)
HEALTHY = (
    Example("intact weights", {f"{name}.weight": T((4, 4)) for name in _NAMES}),
    Example("activations with one slope each", {f"{index}.prelu.weight": T((1,)) for index in range(6)}),
    Example(
        "convolutions with an activation after each",
        {f"{index}.weight": T((4, 4, 3, 3) if index % 2 == 0 else (1,)) for index in range(8)},
    ),
    Example("one empty table", {**{f"{name}.weight": T((4, 4)) for name in _NAMES}, "extra.weight": T((0,))}),
)


@rule("S511", "placeholder-shape", Severity.ERROR, when=placeholder_shapes)
def placeholder_shape(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report state dicts of placeholders."""
    for state_dict in checkpoint.state_dicts:
        found = placeholders(state_dict) if state_dict.role in WEIGHTS else None
        if found is not None:
            yield _problem(state_dict, found)


def _problem(state_dict: StateDict, found: Placeholders) -> Problem:
    total = wording.plural(len(state_dict.tensors), "tensor")
    first = found.empty[0]
    return Problem(
        message=f"{len(found.empty):,} of {total}{wording.of_place(state_dict.path)} are placeholders without values, "
        f"such as {first.key} {wording.shape(first.shape)}",
        cause="Saved from a model whose parameters were spread over ranks by ZeRO stage 3: the values are not in it.",
        torch_says=(
            f"size mismatch for {first.key}: copying a param with shape "
            f"torch.Size({wording.shape(first.shape)}) from checkpoint",
        ),
        advice="Run zero_to_fp32.py, which DeepSpeed puts next to its shards, to make a complete checkpoint from "
        "them; and set stage3_gather_16bit_weights_on_model_save for the next one.",
        keys=tuple([tensor.path for tensor in found.empty]),
        location=Location(path=state_dict.path),
    )


_TELLING = 12  # elements that a parameter has at least where a single one is a placeholder


@judges(Turn.SHAPE)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """The file or the model has nothing where the other has numbers."""
    nothing = [pair for pair in rest.mismatched if prod(pair.there) == 0 != prod(pair.here)]
    if nothing:
        inside = "with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0): ..."
        yield Cause(
            f"the model's parameters are empty ({both_shapes(nothing[0])}): it was made under DeepSpeed "
            "ZeRO-3, which keeps a part of each on each rank. The file is not the cause, and no command "
            "changes it",
            Repair.BY_HAND,
            (Way("load the weights inside", inside),),
            mismatched=[pair.key for pair in nothing],
            code="",
        )
    found = [pair for pair in rest.mismatched if is_placeholder(pair.here) and _wanted(pair)]
    if found:
        yield Cause(
            f"the checkpoint holds empty placeholders ({both_shapes(found[0])}): DeepSpeed ZeRO-3 keeps the "
            "parameters in other files, next to it if the save was complete; no command makes weights from "
            "this file alone",
            Repair.BY_HAND,
            (Way("collect them with", "python zero_to_fp32.py . weights.pt"), CHECK),
            mismatched=[pair.key for pair in found],
        )


def _wanted(pair: Pair) -> bool:
    """Return whether the model has more there.

    DeepSpeed before 0.5 left one element, as small vectors have by right.
    """
    size = prod(pair.there)
    return size > 1 and (prod(pair.here) == 0 or size > _TELLING)
