"""Convolutions have one dimension more or fewer than the target's: 2D weights for a 3D model, or the reverse.

Meaning
    The channels agree and the kernel has a different number of dimensions: [O, I, 3, 3] for [O, I, 3, 3, 3]. The target
    works on volumes or videos, the checkpoint on images, or the reverse.

Why it matters
    ``load_state_dict`` fails, with ``strict=False`` too.

Symptoms
    size mismatch for conv1.weight: copying a param with shape torch.Size([64, 3, 7, 7]) from checkpoint, the shape in
    current model is torch.Size([64, 3, 7, 7, 7]).

Detection
    Only with a reference: both shapes are those of convolutions, with the same channels, and the kernel is the same
    except for one more dimension at its beginning or end. If less than half of the reference fits, W311 is reported
    instead.

Repair
    None: inflating makes up values. The usual way is to repeat the kernel along the new dimension and to divide it by
    that dimension's size, so that a constant input gives the same result.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.causes import shapes
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, both_shapes, judges
from ckptdoctor.rules.kit.shapes_in_errors import pairs_for
from ckptdoctor.rules.kit.shaping import likewise, mismatch
from ckptdoctor.rules.messages import SEE

_BODY = {"bn1.weight": T((4,)), "bn1.bias": T((4,)), "fc.weight": T((2, 4)), "fc.bias": T((2,))}
SICK = (
    Example(
        "images for volumes",
        {"conv1.weight": T((4, 3, 3, 3)), "conv2.weight": T((4, 4, 3, 3)), **_BODY},
        like={"conv1.weight": T((4, 3, 3, 3, 3)), "conv2.weight": T((4, 4, 3, 3, 3)), **_BODY},
    ),
    Example(
        "images for signals",
        {"conv1.weight": T((4, 3, 5, 5)), **_BODY},
        like={"conv1.weight": T((4, 3, 5)), **_BODY},
    ),
)
HEALTHY = (
    Example(
        "the same dimensions",
        {"conv1.weight": T((4, 3, 3, 3)), **_BODY},
        like={"conv1.weight": T((4, 3, 3, 3)), **_BODY},
    ),
    Example(
        "other channels too",
        {"conv1.weight": T((4, 1, 3, 3)), **_BODY},
        like={"conv1.weight": T((4, 3, 3, 3, 3)), **_BODY},
    ),
    Example(
        "a new dimension of size 1",
        {"conv1.weight": T((4, 3, 3, 3)), **_BODY},
        like={"conv1.weight": T((4, 3, 1, 3, 3)), **_BODY},
    ),
)


@rule("S513", "conv-rank-mismatch", Severity.ERROR)
def conv_rank_mismatch(comparison: Comparison) -> Iterator[Problem]:
    """Report convolutions of other dimensions."""
    pairs = shapes(comparison).inflated
    if not pairs:
        return
    ours, theirs = len(pairs[0].here) - 2, len(pairs[0].there) - 2
    way = (
        "repeat each kernel along the new dimension and divide it by that dimension's size"
        if ours < theirs
        else "sum or average each kernel over the removed dimension"
    )
    yield mismatch(
        comparison,
        pairs,
        likewise(pairs),
        f"The checkpoint's convolutions have {ours} dimensions, the model's {theirs}: the channels are the same.",
        f"Build the model with convolutions of {ours} dimensions; or {way}, and fine-tune.",
    )


@judges(Turn.SHAPE, general=4)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """The pairs of shapes that say so by themselves."""
    found = pairs_for(rest, "S513")
    if found:
        meaning = (
            f"a convolution has a different number of dimensions ({both_shapes(found[0])}): one side is for "
            "images, for example, and the other for volumes; no command of ckptdoctor changes it"
        )
        yield Cause(meaning, Repair.BY_HAND, (SEE,), mismatched=[pair.key for pair in found])
