"""Three rules are about tensors that one side holds in one and the other apart, and share their problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.findings import Location
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.fused import Fused
from ckptdoctor.rules.framework import Problem
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.shaping import key_places


def fused_problem(comparison: Comparison, found: Sequence[Fused], what: str, advice: str) -> Iterator[Problem]:
    """Yield a problem for the fused tensors here, and one for those of the target."""
    for here in (True, False):
        those = [each for each in found if each.here is here]
        if those:
            yield _problem(comparison, those, what, advice)


def _problem(comparison: Comparison, found: Sequence[Fused], what: str, advice: str) -> Problem:
    here = found[0].here
    whole = tuple([each.key for each in found])
    parts = tuple([part for each in found for part in each.parts])
    missing, unexpected = (parts, whole) if here else (whole, parts)
    return Problem(
        message=_message(found[0], len(found) - 1),
        cause=f"The checkpoint has {what} {'in one tensor' if here else 'in separate tensors'}, and the model has "
        f"them {'in separate tensors' if here else 'in one tensor'}.{_turned(found)}",
        torch_says=(wording.missing_line(missing), wording.unexpected_line(unexpected)),
        advice=advice,
        keys=key_places(comparison, unexpected),
        location=Location(path=comparison.path),
    )


def _message(first: Fused, more: int) -> str:
    one = f"{first.key} {wording.shape(first.shape)}"
    names = [_short(first.key, part) for part in first.parts]
    sides = dict.fromkeys(wording.shape(shape) for shape in first.part_shapes)
    apart = f"{wording.listed(names)} {', '.join(sides)}"
    text = f"{one} here, {apart} in the model" if first.here else f"{apart} here, {one} in the model"
    return text + wording.beyond(more, "tensor", before="; ", after=" likewise")


def _short(key: str, part: str) -> str:
    """Return a part's name without the modules that it has in common with the fused one."""
    ours, theirs = key.split("."), part.split(".")
    at = next((at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), 0)
    return ".".join(theirs[at:])


def _turned(found: Sequence[Fused]) -> str:
    if not any(each.axis == 1 for each in found):
        return ""
    return " It is transposed as well: inputs × outputs, like Conv1D in transformers."
