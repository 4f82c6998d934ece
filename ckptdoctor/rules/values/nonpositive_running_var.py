"""The running variance of a norm layer is negative.

Meaning
    ``running_var`` is a mean of squares and cannot be negative. Averaging or merging checkpoints with negative factors
    (task arithmetic, extrapolation), a cast, or damage made it so.

Why it matters
    In evaluation the layer divides by the square root of this variance: the affected channels, and soon all, are NaN.

Symptoms
    Nothing when it is loaded; NaN as soon as the model is evaluated. In training it seems fine: batches have their own
    variances.

Detection
    ``check --deep`` reads every value; V651 reports NaN and infinities in it.

Repair
    None: the statistics are lost. Take them from one of the checkpoints that were merged, or estimate them again with
    ``torch.optim.swa_utils.update_bn``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import show_path
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.values.statistics import Values, weights_read

_LAYER = {"bn.weight": T((4,), value=1.0), "bn.bias": T((4,)), "bn.running_mean": T((4,), value=0.5)}
SICK = (Example("a negative variance", {**_LAYER, "bn.running_var": T((4,), value=-0.5)}, deep=True),)
HEALTHY = (
    Example("a variance", {**_LAYER, "bn.running_var": T((4,), value=0.5)}, deep=True),
    Example("a channel that never changes", {**_LAYER, "bn.running_var": T((4,), value=0.0)}, deep=True),
)


@rule("V652", "nonpositive-running-var", Severity.ERROR)
def nonpositive_running_var(values: Values) -> Iterator[Problem]:
    """Report variances below zero."""
    found = [each for each in weights_read(values) if each.leaf == "running_var" and each.values.min < 0]
    if not found:
        return
    first = found[0].tensor
    yield Problem(
        message=(
            f"{wording.plural(len(found), 'running variance goes', 'running variances go')} below zero"
            f"{wording.the_first(show_path(first.path), len(found))}, down to {found[0].values.min:.3g}"
        ),
        cause="In evaluation the layer takes the square root of it: its channels become NaN.",
        advice=(
            "Use the running statistics of a checkpoint that was merged into this one, or estimate them "
            "again with torch.optim.swa_utils.update_bn."
        ),
        keys=tuple([each.tensor.path for each in found]),
        location=Location(path=first.path),
    )
