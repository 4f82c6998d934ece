"""Some weights are byte-identical to those of the checkpoint that it is compared with, and others are not.

Meaning
    A part of the model was frozen in training, or only a head or an adapter was trained; or only a part of the weights
    was replaced, as merges do.

Why it matters
    Nothing is wrong with it. It shows which layers training has changed: more or fewer than you intended are a sign
    of a wrong ``requires_grad``.

Symptoms
    Nothing.

Detection
    ``check --deep --like BASE`` compares the bytes of all tensors with those of the same name, shape and dtype there.
    If nothing has changed, V657 reports it.

Repair
    None is needed. ``ckptdoctor diff BASE FILE --values`` shows how much each tensor has changed.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator

from ckptdoctor.facts.weight_sets import may_train
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.same_as_base import SameAsBase
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.shell import quote

_BASE: dict[str, object] = {"fc.weight": T((4, 3), value=0.5), "fc.bias": T((4,), value=0.25)}
SICK = (Example("a bias that was trained", {**_BASE, "fc.bias": T((4,), value=0.75)}, like=_BASE, deep=True),)
HEALTHY = (
    Example("nothing was trained", _BASE, like=_BASE, deep=True),
    Example(
        "all was trained",
        {"fc.weight": T((4, 3), value=0.75), "fc.bias": T((4,), value=0.75)},
        like=_BASE,
        deep=True,
    ),
)


@rule("V658", "diff-report", Severity.INFO)
def diff_report(found: SameAsBase) -> Iterator[Problem]:
    """Report what training has changed, where it has not changed everything."""
    same = [each for each in found.same if may_train(each.key, each.dtype)]
    different = [each for each in found.different if may_train(each.key, each.dtype)]
    if not same or not different:
        return
    comparison = found.comparison
    kept, changed = (sum([each.numel for each in tensors]) for tensors in (same, different))
    total = f"{len(same):,} of {wording.plural(len(same) + len(different), 'weight')}"
    source = comparison.reference.source
    yield Problem(
        message=f"{total}{wording.of_place(comparison.path)} ({wording.proportion(kept, kept + changed)} of the "
        f"parameters) {'is' if len(same) == 1 else 'are'} byte-identical to {source}",
        cause=f"Others: {wording.module_groups({each.key: each.numel for each in different})}.",
        advice="diff shows how much each has changed:",
        commands=(f"ckptdoctor diff {quote(source)} FILE --values",) if os.path.exists(source) else (),
        keys=tuple([each.path for each in different]),
        location=Location(path=comparison.path),
    )
