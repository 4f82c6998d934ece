"""Keys have another shape than the target expects.

What it means
    The checkpoint's layer and the target's have the same name and different sizes: another number of classes, another
    vocabulary, another width.

Why it matters
    ``load_state_dict`` fails, with ``strict=False`` too.

What you see
    size mismatch for fc.weight: copying a param with shape torch.Size([10, 84]) from checkpoint, the shape in current
    model is torch.Size([100, 84]).

How it is found
    The shapes under equal keys are compared, after the proposed renames. Where the names and sizes point to one
    hyper-parameter it is named.

Repair
    None: values cannot be made up. Build the target with the checkpoint's sizes, or leave these layers out
    (``--drop 'fc.*'``) and train them anew.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.expectation import Expected
from ckptdoctor.facts import modules
from ckptdoctor.facts.alignment import Comparison
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules import wording
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule

_BODY = {"conv1.weight": T((4, 3, 3, 3)), "conv2.weight": T((4, 4, 3, 3))}
SICK = (
    Example(
        "another number of classes",
        {**_BODY, "fc.weight": T((5, 4)), "fc.bias": T((5,))},
        like={**_BODY, "fc.weight": T((2, 4)), "fc.bias": T((2,))},
    ),
    Example(
        "another number of input channels",
        {"conv1.weight": T((4, 1, 3, 3)), "conv2.weight": T((4, 4, 3, 3))},
        like=_BODY,
    ),
)
HEALTHY = (
    Example("the same shapes", _BODY, like=_BODY),
    Example("another dtype", {key: T(value.shape, "float64") for key, value in _BODY.items()}, like=_BODY),
)

_SHOWN = 3  # keys whose shapes the message gives
_PATTERNS = 4  # --drop options that the advice gives


@rule("R003", "shape-mismatch", Severity.ERROR)
def shape_mismatch(comparison: Comparison) -> Iterator[Problem]:
    """Equal keys of different shapes."""
    mismatched = comparison.cured.mismatched
    if not mismatched or comparison.uncovered:
        return
    here, there = comparison.cured.here, comparison.reference.tensors
    first = [_shapes(key, here[key], there[key]) for key in mismatched[:_SHOWN]]
    more = f" and {wording.count(len(mismatched) - _SHOWN, 'key')} more" if len(mismatched) > _SHOWN else ""
    verb = "has" if len(mismatched) == 1 else "have"
    yield Problem(
        message=f"{wording.count(len(mismatched), 'key')} {verb} another shape than in {comparison.reference.source}: "
        f"{', '.join(first)}{more}",
        cause=_explanation(comparison) or "The checkpoint's layers and the target's have different sizes.",
        torch_says=tuple(
            [wording.size_mismatch(key, here[key].shape, there[key].shape) for key in mismatched[:_SHOWN]]
        ),
        advice=f"Build the target with these sizes, or leave the layers out and train them anew: {_drops(comparison)}.",
        keys=tuple([here[key].path for key in mismatched]),
        location=Location(path=comparison.path),
    )


def _shapes(key: str, tensor: Tensor, expected: Expected) -> str:
    return f"{key} {wording.shape(tensor.shape)} here, {wording.shape(expected.shape)} there"


def _drops(comparison: Comparison) -> str:
    here = comparison.cured.here
    wrong = set(comparison.cured.mismatched)
    staying = [tensor.key for key, tensor in here.items() if key not in wrong]
    patterns = modules.patterns([here[key].key for key in comparison.cured.mismatched], staying)
    shown = " ".join([f"--drop {shlex.quote(pattern)}" for pattern in patterns[:_PATTERNS]])
    return f"ckptdoctor fix FILE {shown}{' …' if len(patterns) > _PATTERNS else ''}"


def _explanation(comparison: Comparison) -> str:
    """The hyper-parameter that would explain the shapes, where they are plain: one size of a kind that has a name."""
    here, there = comparison.cured.here, comparison.reference.tensors
    changes = {_change(here[key].shape, there[key].shape) for key in comparison.cured.mismatched}
    pairs = {(ours, theirs) for change in changes if change is not None for _, ours, theirs in (change,)}
    if None in changes or len(pairs) != 1:
        return ""
    ours, theirs = next(iter(pairs))
    dims = {change[0] for change in changes if change is not None}
    what = _kind(comparison, dims)
    if not what:
        return f"One size explains all of them: {ours:,} here, {theirs:,} there."
    return f"The checkpoint has {wording.count(ours, what[0], what[1])}, the target {theirs:,}."


def _change(here: tuple[int, ...], there: tuple[int, ...]) -> tuple[int, int, int] | None:
    """The one dimension that differs with its two sizes; None where more than one does."""
    if len(here) != len(there):
        return None
    differing = [(dim, a, b) for dim, (a, b) in enumerate(zip(here, there, strict=True)) if a != b]
    return differing[0] if len(differing) == 1 else None


def _kind(comparison: Comparison, dims: set[int]) -> tuple[str, str] | None:
    """What the size counts, told by the layer's name and place: singular and plural."""
    keys = comparison.cured.mismatched
    named = {key.rpartition(".")[0] for key in keys}
    words = " ".join(keys).lower()
    if dims == {0}:
        if "pos" in words and "emb" in words:
            return "position", "positions"
        if any(word in words for word in ("emb", "wte", "token", "lm_head")):
            return "token in its vocabulary", "tokens in its vocabulary"
        weights = [key for key in comparison.reference.tensors if len(comparison.reference.tensors[key].shape) > 1]
        if len(named) == 1 and weights and weights[-1] in keys:
            return "class or output", "classes or outputs"
    weights = [key for key in comparison.reference.tensors if len(comparison.reference.tensors[key].shape) > 1]
    if dims == {1} and len(keys) == 1 and weights and weights[0] == keys[0]:
        return "input channel", "input channels"
    return None
