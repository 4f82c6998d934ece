"""The experts of a mixture are stacked in one tensor on one side and apart on the other.

What it means
    Implementations with grouped matrix products hold all experts of a layer in one tensor (``experts.w1`` of
    [8, 14336, 4096], ``experts.gate_up_proj``, ``experts.weight1``); others hold each expert as a module of its own
    (``experts.0.w1.weight``).

Why it matters
    ``load_state_dict`` fails, or with ``strict=False`` leaves all experts random without a word.

What you see
    Missing key(s) in state_dict: "layers.0.experts.0.w1.weight", "layers.0.experts.1.w1.weight", …
    Unexpected key(s) in state_dict: "layers.0.experts.w1", …

How it is found
    Only with a reference: in one block one side has ``experts.0`` … ``experts.N`` and the other tensors of
    ``experts`` without numbers, and both hold just as many elements.

Repair
    None yet: whether the slices are transposed, and in which order gate and up projection lie in them, differs between
    libraries. Stack or unbind them as the library does that the checkpoint comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.facts.alignment import Comparison
from ckptdoctor.facts.shapes.experts import Experts
from ckptdoctor.facts.shapes.sorting import shapes
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules import wording
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.shaping import places

_BODY = {"layers.0.gate.weight": T((3, 4)), "layers.0.norm.weight": T((4,)), "layers.0.attn.weight": T((4, 4))}
_STACKED = {"layers.0.experts.w1": T((3, 6, 4)), "layers.0.experts.w2": T((3, 4, 6))}
_APART: dict[str, object] = {
    f"layers.0.experts.{index}.{name}.weight": T((6, 4) if name == "w1" else (4, 6))
    for index in range(3)
    for name in ("w1", "w2")
}
_MORE = {**_BODY, "head.weight": T((9, 4)), "head.bias": T((9,)), "embed.weight": T((9, 4)), "out.weight": T((4, 4))}
SICK = (
    Example("stacked here, apart there", {**_MORE, **_STACKED}, like={**_MORE, **_APART}),
    Example("apart here, stacked there", {**_MORE, **_APART}, like={**_MORE, **_STACKED}),
)
HEALTHY = (
    Example("apart on both sides", {**_MORE, **_APART}, like={**_MORE, **_APART}),
    Example(
        "fewer experts",
        {**_MORE, "layers.0.experts.w1": T((2, 6, 4)), "layers.0.experts.w2": T((2, 4, 6))},
        like={**_MORE, **_APART},
    ),
)


@rule("S509", "moe-stacked-experts", Severity.ERROR)
def moe_stacked_experts(comparison: Comparison) -> Iterator[Problem]:
    """Experts that are stacked on one side only."""
    found = shapes(comparison).experts
    for here in (True, False):
        layers = [each for each in found if each.here is here]
        if layers:
            yield _problem(comparison, layers)


def _problem(comparison: Comparison, layers: Sequence[Experts]) -> Problem:
    first, here = layers[0], layers[0].here
    stacked = tuple([key for layer in layers for key in layer.stacked])
    apart = tuple([key for layer in layers for key in layer.apart])
    missing, unexpected = (apart, stacked) if here else (stacked, apart)
    more = f"; {wording.count(len(layers) - 1, 'more layer')} likewise" if len(layers) > 1 else ""
    ours, theirs = ("stacked", "apart") if here else ("apart", "stacked")
    return Problem(
        message=f"{first.count:,} experts are {ours} here and {theirs} in the model{_at(comparison, first)}{more}",
        cause=f"The same experts, as many elements: {wording.count(len(stacked), 'tensor')} on one side, "
        f"{len(apart):,} on the other.",
        torch_says=(wording.missing_keys(missing), wording.unexpected_keys(unexpected)),
        advice="Stack or unbind them as the library does that the checkpoint comes from: whether the slices are "
        "transposed, and in which order gate and up projection lie in them, the shapes do not show.",
        keys=places(comparison, unexpected),
        location=Location(path=comparison.path),
    )


def _at(comparison: Comparison, layer: Experts) -> str:
    """The stacked tensor that the sentence can show."""
    key = layer.stacked[0]
    shape = comparison.cured.here[key].shape if layer.here else comparison.reference.tensors[key].shape
    return f" ({key} {wording.shape(shape)})"
