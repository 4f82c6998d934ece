"""The last layer does not have the target's outputs: the checkpoint was trained for other classes.

Meaning
    Everything fits except the output layer: it has a row for each class, and the checkpoint and the target have
    different classes.

Why it matters
    ``load_state_dict`` fails, with ``strict=False`` too: that forgives missing keys, but not different shapes.

Symptoms
    size mismatch for fc.weight: copying a param with shape torch.Size([1000, 2048]) from checkpoint, the shape in
    current model is torch.Size([10, 2048]).

Detection
    Only with a reference: only the first dimension differs, weight and bias agree about it, nothing else in the model
    has these sizes (a hidden layer's would be the next one's inputs), and the layer is called like a head (``fc``,
    ``classifier``, ``head`` …) or is at the end of the model. If less than half of the reference fits, W311 is reported
    instead.

Repair
    None: no values can be made up. Build the target with the checkpoint's number of classes; or leave the head out when
    you load the file, and train it again: the finding gives the line of code. The file keeps its head.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.causes import shapes
from ckptdoctor.match.shapes.heads import Head
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, both_shapes, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.dropping import leaving_out
from ckptdoctor.rules.kit.shapes_in_errors import pairs_for
from ckptdoctor.rules.kit.shaping import likewise, mismatch
from ckptdoctor.rules.messages import CUT, CUT_OFF, MISMATCH, SEE_SHAPES, Message, Way, Weight

_BODY = {"conv1.weight": T((4, 3, 3, 3)), "conv2.weight": T((4, 4, 3, 3)), "conv3.weight": T((4, 4, 3, 3))}
_DETECTOR = {
    **_BODY,
    "roi_heads.box_predictor.cls_score.weight": T((91, 4)),
    "roi_heads.box_predictor.cls_score.bias": T((91,)),
    "roi_heads.box_predictor.bbox_pred.weight": T((364, 4)),
    "roi_heads.box_predictor.bbox_pred.bias": T((364,)),
}
MESSAGES = (
    Message(
        MISMATCH,
        f"the last layer is for a different number of classes ({{key}}; {CUT_OFF})",
        SEE_SHAPES,
        then=r"(?P<key>(?:[\w.]{0,300}?\.)?(?:head|classifier|cls_head|fc_cls|heads)(?:\.[\w.]{1,80})?\."
        r"(?:weight|bias))" + CUT,
        also=("S510", "R003"),
        weight=Weight.ECHO,
        general=1,
    ),
)
SICK = (
    Example(
        "another number of classes",
        {**_BODY, "fc.weight": T((5, 4)), "fc.bias": T((5,))},
        like={**_BODY, "fc.weight": T((2, 4)), "fc.bias": T((2,))},
    ),
    Example(
        "the last layer of a Sequential in a training checkpoint",
        {"model": {"0.weight": T((4, 3)), "0.bias": T((4,)), "2.weight": T((5, 4)), "2.bias": T((5,))}},
        like={"model": {"0.weight": T((4, 3)), "0.bias": T((4,)), "2.weight": T((2, 4)), "2.bias": T((2,))}},
    ),
    Example(
        "both heads of a detector",
        _DETECTOR,
        like={
            **_DETECTOR,
            "roi_heads.box_predictor.cls_score.weight": T((3, 4)),
            "roi_heads.box_predictor.cls_score.bias": T((3,)),
            "roi_heads.box_predictor.bbox_pred.weight": T((12, 4)),
            "roi_heads.box_predictor.bbox_pred.bias": T((12,)),
        },
    ),
)
_HIDDEN = {"fc1.bias": T((8,)), "fc2.weight": T((2, 8)), "fc2.bias": T((2,))}
HEALTHY = (
    Example("the same classes", {**_BODY, "fc.weight": T((2, 4))}, like={**_BODY, "fc.weight": T((2, 4))}),
    Example(
        "a hidden layer with another width",
        {**_BODY, "fc1.weight": T((8, 4)), **_HIDDEN},
        like={
            **_BODY,
            "fc1.weight": T((6, 4)),
            "fc1.bias": T((6,)),
            "fc2.weight": T((2, 6)),
            "fc2.bias": T((2,)),
        },
    ),
    Example(
        "a bias that disagrees",
        {**_BODY, "fc.weight": T((8, 4)), "fc.bias": T((2,))},
        like={**_BODY, "fc.weight": T((2, 4)), "fc.bias": T((2,))},
    ),
    Example(
        "a head with other inputs",
        {**_BODY, "fc.weight": T((5, 8)), "fc.bias": T((5,))},
        like={**_BODY, "fc.weight": T((2, 4)), "fc.bias": T((2,))},
    ),
    Example(
        "a vocabulary",
        {"embed_tokens.weight": T((33, 4)), "norm.weight": T((4,)), "norm.bias": T((4,)), "lm_head.weight": T((33, 4))},
        like={
            "embed_tokens.weight": T((32, 4)),
            "norm.weight": T((4,)),
            "norm.bias": T((4,)),
            "lm_head.weight": T((32, 4)),
        },
    ),
)

_SHOWN = 3  # heads whose outputs the cause gives


@rule("S501", "head-size-mismatch", Severity.ERROR)
def head_size_mismatch(comparison: Comparison) -> Iterator[Problem]:
    """Report terminal layers with other outputs."""
    heads = shapes(comparison).heads
    if not heads:
        return
    pairs = [pair for head in heads for pair in head.pairs]
    cause, way = _words(heads, comparison.reference.arguments)
    out = "the head" if len(heads) == 1 else "the heads"
    line = leaving_out(comparison, [pair.key for pair in pairs])
    anew = f"train {'it' if len(heads) == 1 else 'them'} again{f': {line}' if line else '.'}"
    advice = f"Either build the model with {way}, or leave {out} out when you load the file, and {anew}"
    yield mismatch(comparison, pairs, likewise(pairs), cause, advice)


def _words(heads: tuple[Head, ...], arguments: tuple[tuple[str, int], ...]) -> tuple[str, str]:
    """Return what the checkpoint is, and how to build a model that is the same."""
    sizes = {head.here for head in heads}
    if len(sizes) == 1:
        classes = sizes.pop()
        parameter = _parameter(arguments, {head.there for head in heads})
        way = f"{parameter}={classes}" if parameter else f"{classes:,} classes" if classes > 1 else "a single output"
        if classes > 1:
            return f"The checkpoint is {wording.article(str(classes))} {classes}-class model.", way
        return "The checkpoint's head has a single output.", way
    named = [f"{head.module} {head.here:,} (the model {head.there:,})" for head in heads]
    others = wording.and_more(named, _SHOWN, "head")
    return f"The checkpoint's heads have other outputs: {others}.", "the checkpoint's classes"


def _parameter(arguments: tuple[tuple[str, int], ...], theirs: set[int]) -> str:
    """Return the argument that decides how many outputs the model's head has.

    It is "" where none, or more than one, may do so.
    """
    named = [name for name, value in arguments if {value} == theirs]
    telling = [name for name in named if any(word in name.lower() for word in _TELLING)]
    return telling[0] if len(telling) == 1 else named[0] if len(named) == 1 else ""


_TELLING = ("class", "label", "categor", "out")


@judges(Turn.SIZE)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Layers that are called like heads have other outputs, and nothing else differs."""
    found = pairs_for(rest, "S501")
    if not found:
        return
    first = found[0]
    here, there, rank = first.here[0], first.there[0], len(first.here)
    classes = f"the last layer is for {here:,} classes in the checkpoint and for {there:,} in the model"
    ways = [Way(f"build the model for {here:,} classes, often with", f"num_classes={here}")]
    if rest.error.transformers and rank <= 2:
        ways = [
            Way(f"build the model for {here:,} classes with", f"from_pretrained(..., num_labels={here})"),
            Way("or train the head again", "from_pretrained(..., ignore_mismatched_sizes=True)"),
        ]
    elif rank > 2:  # anchors times classes
        classes = "the output layers have different sizes: the numbers of classes differ"
        ways = [Way("build the model with as many classes as the file has; its sizes", "ckptdoctor show FILE")]
    elif re.fullmatch(r"[\w.]{1,200}", first.module):
        others = f'{{key: value for key, value in weights.items() if not key.startswith("{first.module}.")}}'
        ways.append(Way("or train the head again", f"model.load_state_dict({others}, strict=False)"))
    meaning = f"{classes} ({both_shapes(first)})"
    yield Cause(meaning, Repair.BY_HAND, tuple(ways), mismatched=[pair.key for pair in found])
