"""A text replacement has changed letters in the middle of names.

Meaning
    Some loaders replaced ``gamma`` with ``weight``, ``beta`` with ``bias`` or ``weight_g`` with
    ``parametrizations.weight.original0`` anywhere in a name: ``gamma_norm`` became ``weight_norm``, ``weight_gate``
    became ``parametrizations.weight.original0ate``.

Why it matters
    A checkpoint that was saved after that has names that no model has.

Symptoms
    Missing key(s) in state_dict: "gamma_norm.scale".
    Unexpected key(s) in state_dict: "weight_norm.scale".

Detection
    Only with a reference: its keys, damaged in the same way, are the keys here, shape by shape.

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
from ckptdoctor.rules.kit.names_in_errors import rename_causes

_WANTED = {"moe.weight_gate.7": T((4, 3)), "gamma_norm.scale": T((4,)), "out.weight": T((2, 4))}
_HERE = {
    "moe.parametrizations.weight.original0ate.7": T((4, 3)),
    "weight_norm.scale": T((4,)),
    "out.weight": T((2, 4)),
}
SICK = (Example("names that were damaged while loading", _HERE, like=_WANTED),)
HEALTHY = (Example("the names as they were", _WANTED, like=_WANTED),)
_CAUSE = "A loader replaced text anywhere in the names, not only whole parameter names."


@rule("N415", "corrupted-by-substring-rename", Severity.ERROR)
def corrupted_by_substring_rename(comparison: Comparison) -> Iterator[Problem]:
    """Report one step of the chain."""
    yield from moved_problems(
        comparison,
        "N415",
        _CAUSE,
    )


@judges(Turn.NAME, general=1)
def of_names(rest: IncompatibleKeys) -> Iterator[Cause]:
    """The names allow this rename, and no other."""
    yield from rename_causes(rest, "N415", _CAUSE)
