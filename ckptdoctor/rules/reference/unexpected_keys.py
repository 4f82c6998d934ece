"""The checkpoint has keys that the target does not know, and no other rule explains it.

What it means
    After every cure that the other rules propose, these keys have no counterpart in the reference: the saved model had
    layers, losses or buffers that the target does not have, or calls differently.

Why it matters
    ``load_state_dict`` fails. With ``strict=False`` these weights are left out without a word.

What you see
    Unexpected key(s) in state_dict: "fc.weight", "fc.bias".

How it is found
    The checkpoint's keys are looked up in the reference, after the proposed renames. Where less than half of the
    reference fits, W311 speaks instead.

Repair
    ``ckptdoctor fix FILE --drop 'fc.*'`` leaves them out. Unsafe: they go, and the target may want them under another
    name. Not offered where it would take more than a few patterns.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ckptdoctor.edits import Drop, Fix, Safety
from ckptdoctor.facts import modules
from ckptdoctor.facts.alignment import Comparison
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules import wording
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule

_BODY = {"conv1.weight": T((4, 3, 3, 3)), "conv2.weight": T((4, 4, 3, 3)), "conv3.weight": T((4, 4, 3, 3))}
SICK = (
    Example("a head that the target lacks", {**_BODY, "fc.weight": T((2, 4)), "fc.bias": T((2,))}, like=_BODY),
    Example(
        "a loss beside the model",
        {"epoch": 1, "model": {**_BODY, "criterion.weight": T((2,))}},
        like={"epoch": 1, "model": _BODY},
    ),
)
HEALTHY = (
    Example("the same keys", _BODY, like=_BODY),
    Example("a target with one more layer", _BODY, like={**_BODY, "fc.weight": T((2, 4)), "fc.bias": T((2,))}),
)

_PATTERNS = 8  # --drop options on one command line


@rule("R002", "unexpected-keys", Severity.ERROR)
def unexpected_keys(comparison: Comparison) -> Iterator[Problem]:
    """Keys of the checkpoint without a counterpart."""
    cured = comparison.cured
    if not cured.unexpected or comparison.uncovered:
        return
    tensors = [cured.here[key] for key in cured.unexpected]
    sizes = {key: cured.here[key].numel for key in cured.unexpected}
    fix, advice = _fix(comparison)
    yield Problem(
        message=f"{len(tensors):,} of {wording.count(len(cured.here), 'key')}{wording.of_place(comparison.path)} "
        f"{'is' if len(tensors) == 1 else 'are'} unknown to {comparison.reference.source}",
        cause=f"The saved model had what the target does not have, or calls differently: {wording.groups(sizes)}.",
        torch_says=(wording.unexpected_keys(cured.unexpected),),
        advice=advice,
        keys=tuple([tensor.path for tensor in tensors]),
        location=Location(path=comparison.path),
        fix=fix,
    )


def _fix(comparison: Comparison) -> tuple[Fix | None, str]:
    """The fix that drops them, or advice where that would take too many options."""
    cured = comparison.cured
    gone = set(cured.unexpected)
    going = [cured.here[key] for key in cured.unexpected]
    staying = [tensor.key for key, tensor in cured.here.items() if key not in gone]
    patterns = modules.patterns([tensor.key for tensor in going], staying)
    shown = [f"--drop {shlex.quote(pattern)}" for pattern in patterns[:_PATTERNS]]
    if len(patterns) > _PATTERNS:
        return None, f"They lie scattered: {len(patterns):,} options such as {shown[0]} would leave them out."
    title = f"drop {wording.count(len(going), 'key')}"
    edits = (Drop(tuple([tensor.path for tensor in going])),)
    return Fix(title, edits, Safety.UNSAFE, " ".join(shown)), ""
