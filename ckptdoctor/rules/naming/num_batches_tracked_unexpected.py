"""The norm layers count their batches in ``num_batches_tracked``, and the target's do not.

Meaning
    Since torch 0.4.1 BatchNorm has a counter next to its running stats. Frozen batch norms (torchvision, detectron2),
    InPlaceABN and other layers that take BatchNorm's weights have none.

Why it matters
    ``load_state_dict`` fails. Losing the counter does no harm: torch reads it only where BatchNorm's momentum is None.

Symptoms
    Unexpected key(s) in state_dict: "bn1.num_batches_tracked", "layer1.0.bn1.num_batches_tracked", …

Detection
    Only with a reference: ``num_batches_tracked`` of one number that the reference does not have, in layers of which
    nothing else is left over. Where running stats are left over too, N418 reports it.

Repair
    ``ckptdoctor fix FILE --drop '*.num_batches_tracked'``. Confirmed: it drops only counters that the target does not
    expect.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.leftovers import leftovers
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Repair
from ckptdoctor.rules.kit.dropping import unexpected_problem
from ckptdoctor.rules.signs import Sign, leaf_among

_NET = {
    "conv.weight": T((4, 3, 3, 3)),
    "bn.weight": T((4,)),
    "bn.bias": T((4,)),
    "bn.running_mean": T((4,)),
    "bn.running_var": T((4,)),
}
_COUNTED = {**_NET, "bn.num_batches_tracked": T((), "int64")}
_BARE = {key: value for key, value in _NET.items() if key.startswith("conv")}
SIGNS = (
    Sign(
        "the file has num_batches_tracked, a counter of BatchNorm that the model's layers do not keep",
        Repair.LOSS,
        unexpected=leaf_among("num_batches_tracked"),
        lonely=True,
        general=1,
    ),
)
SICK = (
    Example("a frozen batch norm", _COUNTED, like=_NET),
    Example("behind a wrapper", {f"module.{key}": value for key, value in _COUNTED.items()}, like=_NET),
)
HEALTHY = (
    Example("a target that counts too", _COUNTED, like=_COUNTED),
    Example("a target without the layer", _COUNTED, like=_BARE),
    Example("something else with that name", {**_NET, "bn.num_batches_tracked": T((4,), "int64")}, like=_NET),
)


@rule("N417", "num-batches-tracked-unexpected", Severity.WARNING)
def num_batches_tracked_unexpected(comparison: Comparison) -> Iterator[Problem]:
    """Report counters of norm layers that the target does not know."""
    keys = leftovers(comparison).counters
    if keys:
        yield unexpected_problem(
            comparison,
            keys,
            f"{'counts' if len(keys) == 1 else 'count'} batches, which {comparison.reference.source} does not",
            "The target's norm layers are frozen, fused or older than the counter. It is read only where a "
            "BatchNorm has no momentum: nothing is lost without it.",
        )
