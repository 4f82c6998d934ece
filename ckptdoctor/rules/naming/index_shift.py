"""Numbered layers are counted from another number.

What it means
    ``layers.0`` here is ``layers.1`` in the target: a ``Sequential`` has one more or one less element before them, or
    the file holds a later stage of a pipeline.

Why it matters
    ``load_state_dict`` fails; or, where shapes agree, layers are loaded into their neighbours without a word.

What you see
    Missing key(s) in state_dict: "layers.4.weight".
    Unexpected key(s) in state_dict: "layers.0.weight".

How it is found
    Only with a reference: below one container, all numbers moved by the same amount make more keys fit.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER``: keys are renamed one to one, in ``_metadata`` and an optimizer's
    ``param_names`` as well; no value changes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.facts.alignment import Comparison
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.moving import moved

_HERE = {f"layers.{n}.weight": T((n + 2, 3)) for n in range(3)}
_WANTED = {f"layers.{n + 1}.weight": value for n, value in enumerate(_HERE.values())}
SICK = (Example("one element more before them", _HERE, like=_WANTED),)
HEALTHY = (
    Example("the same numbers", _HERE, like=_HERE),
    Example("a layer less", {"layers.0.weight": T((2, 3)), "layers.1.weight": T((3, 3))}, like=_HERE),
)


@rule("N424", "index-shift", Severity.ERROR)
def index_shift(comparison: Comparison) -> Iterator[Problem]:
    """One step of the chain."""
    yield from moved(
        comparison,
        "N424",
        "A container of the target has more or fewer elements before these.",
    )
