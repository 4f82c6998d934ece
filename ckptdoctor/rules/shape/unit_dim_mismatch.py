"""Tensors have the target's elements in a different shape: more or fewer dimensions of size 1.

Meaning
    A scale was saved as a scalar and is a vector of one now, a vector per channel got dimensions of size 1 (``[C]``,
    ``[1, C, 1, 1]``), or a linear layer became a 1 × 1 convolution. The elements are the same, in the same order.

Why it matters
    ``load_state_dict`` fails, with ``strict=False`` too.

Symptoms
    size mismatch for logit_scale: copying a param with shape torch.Size([]) from checkpoint, the shape in current
    model is torch.Size([1]).

Detection
    Only with a reference: both shapes are equal without their dimensions of size 1. A vector of one element for a
    scalar is only info: torch accepts it.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER`` gives them the target's shape. No value changes, and the reference
    confirms it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.edits import Fix, Reshape, Safety
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.causes import shapes
from ckptdoctor.match.shapes.pairs import Pair, loads_anyway
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, both_shapes, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option
from ckptdoctor.rules.kit.shapes_in_errors import pairs_for
from ckptdoctor.rules.kit.shaping import key_places, likewise, mismatch

_BODY = {"conv1.weight": T((4, 3, 3, 3)), "conv2.weight": T((4, 4, 3, 3)), "fc.bias": T((2,))}
SICK = (
    Example("a scalar for a vector of one", {**_BODY, "scale": T(())}, like={**_BODY, "scale": T((1,))}),
    Example(
        "a linear layer for a convolution, and a scale per channel",
        {**_BODY, "fc.weight": T((2, 4)), "gamma": T((4,))},
        like={**_BODY, "fc.weight": T((2, 4, 1, 1)), "gamma": T((1, 4, 1, 1))},
    ),
    Example(
        "a vector of one for a scalar, which torch accepts", {**_BODY, "scale": T((1,))}, like={**_BODY, "scale": T(())}
    ),
)
HEALTHY = (
    Example("the same shapes", {**_BODY, "scale": T((1,))}, like={**_BODY, "scale": T((1,))}),
    Example(
        "the same number of elements in another order",
        {**_BODY, "table": T((2, 6))},
        like={**_BODY, "table": T((3, 4))},
    ),
    Example("another size", {**_BODY, "gamma": T((4,))}, like={**_BODY, "gamma": T((1, 8, 1, 1))}),
)


@rule("S506", "unit-dim-mismatch", Severity.ERROR)
def unit_dim_mismatch(comparison: Comparison) -> Iterator[Problem]:
    """Report shapes that differ only in dimensions of size 1."""
    pairs = shapes(comparison).units
    refused = [pair for pair in pairs if not loads_anyway(pair)]
    taken = [pair for pair in pairs if loads_anyway(pair)]
    if refused:
        yield mismatch(
            comparison,
            refused,
            likewise(refused),
            "The elements are the same, in the same order; only the number of dimensions of size 1 differs.",
            fix=_fix(comparison, refused),
        )
    if taken:
        yield Problem(
            message=likewise(taken),
            cause="torch silently accepts a vector of one element for a scalar.",
            keys=key_places(comparison, [pair.key for pair in taken]),
            location=Location(path=comparison.path),
            fix=_fix(comparison, taken),
            severity=Severity.INFO,
        )


def _fix(comparison: Comparison, pairs: Sequence[Pair]) -> Fix:
    edits = tuple([Reshape(comparison.renamed.here[pair.key].path, pair.there) for pair in pairs])
    return Fix(f"reshape {wording.plural(len(pairs), 'tensor')}", edits, Safety.CONFIRMED, auto_option(comparison))


@judges(Turn.SHAPE, general=4)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """The pairs of shapes that say so by themselves."""
    found = pairs_for(rest, "S506")
    if found:
        meaning = f"the shapes differ only by dimensions of size one ({both_shapes(found[0])})"
        yield Cause(meaning, Repair.SAFE, mismatched=[pair.key for pair in found])
