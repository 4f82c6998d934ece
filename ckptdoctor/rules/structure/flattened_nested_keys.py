"""The dots between the parts of names were left out.

Meaning
    ``LitEma`` of latent diffusion keeps averaged weights in buffers, whose names may not contain dots:
    ``model.blocks.1`` becomes ``modelblocks1``.

Why it matters
    No model has such names: ``load_state_dict`` fails.

Symptoms
    Missing key(s) in state_dict: "output_blocks.7.1.weight".
    Unexpected key(s) in state_dict: "output_blocks71weight".

Detection
    Only with a reference: without its dots each key of the target is the name of one tensor here, with the same shape.
    A name that two keys of the target would give counts for neither.

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

_WANTED = {"blocks.7.1.weight": T((4, 3)), "blocks.7.1.bias": T((4,)), "out.weight": T((2, 4))}
_HERE = {key.replace(".", ""): value for key, value in _WANTED.items()}
SICK = (Example("averaged weights in buffers", _HERE, like=_WANTED),)
HEALTHY = (
    Example("the same names", _WANTED, like=_WANTED),
    Example(
        "two keys that look alike without dots",
        {"blocks11weight": T((4,))},
        like={"blocks.1.1.weight": T((4,)), "blocks.11.weight": T((4,)), "out.weight": T((3,))},
    ),
)
_CAUSE = "Averaged weights were kept in buffers, whose names may not contain dots."


@rule("W308", "flattened-nested-keys", Severity.WARNING)
def flattened_nested_keys(comparison: Comparison) -> Iterator[Problem]:
    """Report one step of the chain."""
    yield from moved_problems(
        comparison,
        "W308",
        _CAUSE,
    )


@judges(Turn.NAME, general=1)
def of_names(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Unexpected keys are missing ones without dots."""
    yield from rename_causes(rest, "W308", _CAUSE)
