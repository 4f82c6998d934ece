"""A weight is larger than 10,000.

Meaning
    Weights of networks that work stay within a few units, and outliers of large language models within hundreds. One
    this large comes from training that was about to diverge, from a wrong scale in a conversion, or from damage.

Why it matters
    Activations overflow float16, and swamp everything else in bfloat16. Training continues with jumps, or not at all.

Symptoms
    Nothing when it is loaded; an unstable loss, infinities in half precision.

Detection
    ``check --deep`` reads every value of every possible parameter called ``weight`` or ``bias``. Buffers (running
    variances, frequencies, schedules) may be as large as they like.

Repair
    None: a large value may be right. Compare with an earlier checkpoint (``ckptdoctor diff --values``).
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import show_path
from ckptdoctor.facts.weight_sets import may_train
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.values.statistics import Read, Values, weights_read

_HUGE = 1e4
_MASKS = ("mask", "scale")
SICK = (Example("a huge weight", {"a.weight": T((4, 3), value=123_456.0), "a.bias": T((4,), value=1.0)}, deep=True),)
HEALTHY = (
    Example("a large weight", {"a.weight": T((4, 3), value=123.0)}, deep=True),
    Example("a running variance", {"bn.weight": T((4,), value=1.0), "bn.running_var": T((4,), value=1e6)}, deep=True),
)


@rule("V656", "huge-magnitude", Severity.WARNING)
def huge_magnitude(values: Values) -> Iterator[Problem]:
    """Report weights that are too large."""
    found = [each for each in weights_read(values) if each.values.absmax > _HUGE and _is_weight(each)]
    if not found:
        return
    worst = max(found, key=lambda each: each.values.absmax)
    yield Problem(
        message=(
            f"{wording.plural(len(found), 'tensor holds', 'tensors hold')} weights larger than 10,000; "
            f"the largest is {worst.values.absmax:,.8g} in {show_path(worst.tensor.path)}"
        ),
        cause="Training that was about to diverge, a wrong scale in a conversion, or damage.",
        advice="Compare with an earlier checkpoint; do not cast these tensors to float16.",
        keys=tuple([each.tensor.path for each in found]),
        location=Location(path=worst.tensor.path),
    )


def _is_weight(read: Read) -> bool:
    leaf = read.leaf
    named = ("weight" in leaf or "bias" in leaf) and not any(word in leaf for word in _MASKS)
    return named and read.tensor.dtype.kind == "float" and may_train(read.tensor.key, read.tensor.dtype)
