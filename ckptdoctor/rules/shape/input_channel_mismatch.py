"""The first convolution does not take the target's channels: grey images, or more than three bands.

Meaning
    Only the input layer differs, and only in its number of channels.

Why it matters
    ``load_state_dict`` fails, with ``strict=False`` too.

Symptoms
    size mismatch for conv1.weight: copying a param with shape torch.Size([64, 3, 7, 7]) from checkpoint, the shape in
    current model is torch.Size([64, 1, 7, 7]).

Detection
    Only with a reference: a single convolution differs only in its inputs, no layer has as many outputs, and it is the
    model's first or is called like one (``conv1``, ``stem``, ``patch_embed``, ``conv_in`` …). If less than half of the
    reference fits, W311 is reported instead.

Repair
    None: you decide how the channels of one input become those of another. For grey images the sum over the three
    channels gives the same result as an image with three equal channels.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.causes import shapes
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, both_shapes, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.shapes_in_errors import pairs_for
from ckptdoctor.rules.kit.shaping import mismatch, pair_words
from ckptdoctor.rules.messages import SEE

_BODY = {"bn1.weight": T((4,)), "conv2.weight": T((4, 4, 3, 3)), "fc.weight": T((2, 4))}
SICK = (
    Example(
        "colour for grey",
        {"conv1.weight": T((4, 3, 3, 3)), **_BODY},
        like={"conv1.weight": T((4, 1, 3, 3)), **_BODY},
    ),
    Example(
        "four more bands for a Sequential",
        {"0.weight": T((4, 3, 3, 3)), "0.bias": T((4,)), "3.weight": T((4, 4, 3, 3)), "1.weight": T((4,))},
        like={"0.weight": T((4, 7, 3, 3)), "0.bias": T((4,)), "3.weight": T((4, 4, 3, 3)), "1.weight": T((4,))},
    ),
)
HEALTHY = (
    Example(
        "the same channels", {"conv1.weight": T((4, 3, 3, 3)), **_BODY}, like={"conv1.weight": T((4, 3, 3, 3)), **_BODY}
    ),
    Example(
        "another kernel",
        {"conv1.weight": T((4, 3, 7, 7)), **_BODY},
        like={"conv1.weight": T((4, 3, 3, 3)), **_BODY},
    ),
    Example(
        "a later layer in groups",
        {"conv1.weight": T((4, 3, 3, 3)), **_BODY},
        like={"conv1.weight": T((4, 3, 3, 3)), **_BODY, "conv2.weight": T((4, 2, 3, 3))},
    ),
)


@rule("S504", "input-channel-mismatch", Severity.ERROR)
def input_channel_mismatch(comparison: Comparison) -> Iterator[Problem]:
    """Report the first convolution with other inputs."""
    pair = shapes(comparison).channels
    if pair is None:
        return
    ours, theirs = pair.here[1], pair.there[1]
    yield mismatch(
        comparison,
        [pair],
        pair_words(pair),
        f"The checkpoint takes {wording.plural(ours, 'input channel')}, the model {theirs:,}.",
        f"Build the model with {wording.plural(ours, 'input channel')}{_conversion(ours, theirs)}.",
    )


def _conversion(ours: int, theirs: int) -> str:
    """Return how the weights are commonly made over, where there is a way that keeps what the model does."""
    if (ours, theirs) == (3, 1):
        return "; or sum the weights over the three channels: weight.sum(1, keepdim=True) does the same for grey images"
    if (ours, theirs) == (1, 3):
        return "; or give each of three channels a third: weight.repeat(1, 3, 1, 1) / 3 does the same for grey images"
    return ", or initialise the new channels, and fine-tune"


@judges(Turn.SHAPE, general=4)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """The pairs of shapes that say so by themselves."""
    found = pairs_for(rest, "S504")
    if found:
        meaning = (
            f"the first convolution expects a different number of input channels ({both_shapes(found[0])}); "
            "no command of ckptdoctor changes it"
        )
        yield Cause(meaning, Repair.BY_HAND, (SEE,), mismatched=[pair.key for pair in found])
