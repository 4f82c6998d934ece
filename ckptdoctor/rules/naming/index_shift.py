"""Numbered layers are counted from another number.

What it means
    ``layers.0`` here is ``layers.1`` in the target: a ``Sequential`` has one more or one less element before them, or
    the file holds a later stage of a pipeline. Or one part of each element moved on: ``layers.0.downsample`` of Swin is
    ``layers.1.downsample`` in timm.

Why it matters
    ``load_state_dict`` fails; or, where shapes agree, layers are loaded into their neighbours without a word.

What you see
    Missing key(s) in state_dict: "layers.4.weight".
    Unexpected key(s) in state_dict: "layers.0.weight".

How it is found
    Only with a reference: below one container, all numbers moved by the same amount make more keys fit; or those of
    parts that hold the same parameters.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER``: keys are renamed one to one, in ``_metadata`` and an optimizer's
    ``param_names`` as well; no value changes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Turn, judges
from ckptdoctor.rules.kit.moving import moved_problems
from ckptdoctor.rules.kit.names_in_errors import renames

_HERE = {f"layers.{n}.weight": T((n + 2, 3)) for n in range(3)}
_WANTED = {f"layers.{n + 1}.weight": value for n, value in enumerate(_HERE.values())}
_BLOCKS = {f"layers.{n}.blocks.{i}.weight": T((n + 2, 3)) for n in range(3) for i in range(2)}
_ENDS = {f"layers.{n}.down.weight": T((n + 3, n + 2)) for n in range(2)}
_BEGINS = {f"layers.{n + 1}.down.weight": value for n, value in enumerate(_ENDS.values())}
ALSO = ("N423",)
SICK = (
    Example("one element more before them", _HERE, like=_WANTED),
    Example("one part of each element", _BLOCKS | _ENDS, like=_BLOCKS | _BEGINS),
)
HEALTHY = (
    Example("the same numbers", _HERE, like=_HERE),
    Example("a layer less", {"layers.0.weight": T((2, 3)), "layers.1.weight": T((3, 3))}, like=_HERE),
)


@rule("N424", "index-shift", Severity.ERROR)
def index_shift(comparison: Comparison) -> Iterator[Problem]:
    """One step of the chain."""
    yield from moved_problems(
        comparison,
        "N424",
        "A container of the target has more or fewer elements before these.",
    )


@judges(Turn.NAME, general=1)
def of_names(rest: IncompatibleKeys) -> Iterator[Cause]:
    """The names allow this rename, and no other."""
    for each in renames(rest, "N424"):
        yield each.cause(f"layers are counted from another number: {each.told} gives the model's names")
