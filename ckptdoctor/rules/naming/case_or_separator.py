"""Names differ only in case or separators.

Meaning
    An exporter wrote ``layer_norm`` for ``LayerNorm``, or ``/`` for the dots between the parts of a name.

Why it matters
    ``load_state_dict`` compares names exactly: loading fails.

Symptoms
    Missing key(s) in state_dict: "encoder.LayerNorm.weight".
    Unexpected key(s) in state_dict: "encoder/layer_norm/weight".

Detection
    Only with a reference: without ``. _ / -`` and in lower case each of these keys is one key of the target, with the
    same shape.

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

_HERE = {"encoder/layer_norm/weight": T((4,)), "encoder/dense/weight": T((4, 3))}
_WANTED = {"encoder.LayerNorm.weight": T((4,)), "encoder.dense.weight": T((4, 3))}
SICK = (Example("slashes and lower case", _HERE, like=_WANTED),)
HEALTHY = (
    Example("the same names", _HERE, like=_HERE),
    Example(
        "two keys that would be one",
        {"a_b.weight": T((4,)), "ab.weight": T((4,))},
        like={"AB.weight": T((4,)), "c.weight": T((9,))},
    ),
)
_CAUSE = "Names that differ only in case and separators look the same to people, but not to torch."


@rule("N427", "case-or-separator", Severity.WARNING)
def case_or_separator(comparison: Comparison) -> Iterator[Problem]:
    """Report one step of the chain."""
    yield from moved_problems(
        comparison,
        "N427",
        _CAUSE,
    )


@judges(Turn.NAME, general=1)
def of_names(rest: IncompatibleKeys) -> Iterator[Cause]:
    """The names allow this rename, and no other."""
    yield from rename_causes(rest, "N427", _CAUSE)
