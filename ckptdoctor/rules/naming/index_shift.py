"""The numbers of layers are shifted.

Meaning
    ``layers.0`` here is ``layers.1`` in the target: a ``Sequential`` has one element more or fewer before them, or the
    file holds a later stage of a pipeline. Or one part of each element moved on: ``layers.0.downsample`` of Swin is
    ``layers.1.downsample`` in timm.

Why it matters
    ``load_state_dict`` fails; or, where shapes agree, layers are silently loaded into their neighbours.

Symptoms
    Missing key(s) in state_dict: "layers.4.weight".
    Unexpected key(s) in state_dict: "layers.0.weight".

Detection
    Only with a reference: below one container, all numbers moved by the same amount make more keys fit; or those of
    parts that hold the same parameters.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER``: keys are renamed one to one, in ``_metadata`` and an optimizer's
    ``param_names`` as well; no value changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.pairs import Shape
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.moving import moved_problems
from ckptdoctor.rules.kit.names_in_errors import BY_MODEL, rename_causes

_HERE = {f"layers.{n}.weight": T((n + 2, 3)) for n in range(3)}
_WANTED = {f"layers.{n + 1}.weight": value for n, value in enumerate(_HERE.values())}
_BLOCKS = {f"layers.{n}.blocks.{i}.weight": T((n + 2, 3)) for n in range(3) for i in range(2)}
_ENDS = {f"layers.{n}.down.weight": T((n + 3, n + 2)) for n in range(2)}
_BEGINS = {f"layers.{n + 1}.down.weight": value for n, value in enumerate(_ENDS.values())}
ALSO = ("N423",)
SICK = (
    Example("one more element before them", _HERE, like=_WANTED),
    Example("one part of each element", _BLOCKS | _ENDS, like=_BLOCKS | _BEGINS),
)
HEALTHY = (
    Example("the same numbers", _HERE, like=_HERE),
    Example("one layer fewer", {"layers.0.weight": T((2, 3)), "layers.1.weight": T((3, 3))}, like=_HERE),
)
_CAUSE = "A container has more or fewer elements before these on one side."


@rule("N424", "index-shift", Severity.ERROR)
def index_shift(comparison: Comparison) -> Iterator[Problem]:
    """Report one step of the chain."""
    yield from moved_problems(
        comparison,
        "N424",
        _CAUSE,
    )


@judges(Turn.NAME, general=1)
def of_names(rest: IncompatibleKeys) -> Iterator[Cause]:
    """The names allow this rename, and no other."""
    yield from rename_causes(rest, "N424", _CAUSE)


_NUMBERED = re.compile(r"(?P<container>.*?)(?P<number>\d{1,9})(?P<rest>\..+)")


@judges(Turn.NAME, general=2)
def of_shapes(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Below one container each shape in the file is that of the model so many numbers further."""
    here = dict.fromkeys(rest.unexpected) | {pair.key: pair.here for pair in rest.mismatched}
    there = dict.fromkeys(rest.missing) | {pair.key: pair.there for pair in rest.mismatched}
    ours, theirs = _by_container(here), _by_container(there)
    for container in [each for each in ours if each in theirs]:
        shift = min(theirs[container])[0] - min(ours[container])[0]
        if shift and _fit(ours[container], theirs[container], shift):
            keys = {f"{container}{number}{name}" for number, name in (*ours[container], *theirs[container])}
            sign = "+" if shift > 0 else "-"
            move = f"{container}{{n}} → {container}{{n{sign}{abs(shift)}}}"
            meaning = f"{wording.fragment(_CAUSE)}: {move} gives the model's shapes"
            yield Cause(
                meaning,
                Repair.NONE,
                (BY_MODEL,),
                missing=keys.intersection(rest.missing),
                unexpected=keys.intersection(rest.unexpected),
                mismatched=keys.intersection([pair.key for pair in rest.mismatched]),
            )


_Numbered = dict[tuple[int, str], "Shape | None"]


def _by_container(shapes: Mapping[str, Shape | None]) -> dict[str, _Numbered]:
    """Return what is in each numbered container: by its number and what follows that; the shape, where it is known."""
    found: dict[str, _Numbered] = {}
    for key, shape in shapes.items():
        parts = _NUMBERED.fullmatch(key)
        if parts is not None:
            found.setdefault(parts["container"], {})[int(parts["number"]), parts["rest"]] = shape
    return found


def _fit(ours: _Numbered, theirs: _Numbered, shift: int) -> bool:
    """Return whether all of it is there so many numbers further, and at least one shape says so."""
    pairs = [(shape, theirs.get((number + shift, name), ())) for (number, name), shape in ours.items()]
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    whole = len(ours) == len(theirs) and all((number + shift, name) in theirs for number, name in ours)
    return whole and bool(known) and all(one == other for one, other in known)
