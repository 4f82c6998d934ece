"""A position table does not have the target's rows: another image size, window or text length.

Meaning
    Learnt positions have one row each: for every patch of an image (and a class token), for every offset in an
    attention window, or for every position in a text. The target was built for another size.

Why it matters
    ``load_state_dict`` fails, with ``strict=False`` too.

Symptoms
    size mismatch for pos_embed: copying a param with shape torch.Size([1, 197, 768]) from checkpoint, the shape in
    current model is torch.Size([1, 577, 768]).

Detection
    Only with a reference: a tensor with the name of a position table (``pos_embed``, ``position_embeddings``, ``wpe``,
    ``relative_position_bias_table`` …) differs in one dimension. Where both sizes are squares (plus a class token), the
    grids are named. Masks and ids with exactly these sizes belong to it. If less than half of the reference fits, W311
    is reported instead.

Repair
    None: interpolating a table makes up values. Build the target for the checkpoint's size, or interpolate the table
    (bicubic over the grid, tokens before it kept) and fine-tune.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.causes import shapes
from ckptdoctor.match.shapes.positions import Grid, Positions
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, both_shapes, judges
from ckptdoctor.rules.kit.shapes_in_errors import pairs_for
from ckptdoctor.rules.kit.shaping import likewise, mismatch
from ckptdoctor.rules.messages import SEE

_BODY = {"blocks.0.fc.weight": T((4, 4)), "blocks.1.fc.weight": T((4, 4)), "norm.weight": T((4,))}
SICK = (
    Example(
        "an image with another size",
        {"pos_embed": T((1, 5, 4)), **_BODY},
        like={"pos_embed": T((1, 17, 4)), **_BODY},
    ),
    Example(
        "another attention window",
        {"attn.relative_position_bias_table": T((9, 2)), "attn.relative_position_index": T((4, 4), "int64"), **_BODY},
        like={
            "attn.relative_position_bias_table": T((25, 2)),
            "attn.relative_position_index": T((9, 9), "int64"),
            **_BODY,
        },
    ),
    Example(
        "longer texts, and a mask of the same length",
        {"wpe.weight": T((8, 4)), "h.0.attn.bias": T((1, 1, 8, 8)), **_BODY},
        like={"wpe.weight": T((12, 4)), "h.0.attn.bias": T((1, 1, 12, 12)), **_BODY},
    ),
)
HEALTHY = (
    Example("the same size", {"pos_embed": T((1, 5, 4)), **_BODY}, like={"pos_embed": T((1, 5, 4)), **_BODY}),
    Example(
        "positions with another width too",
        {"pos_embed": T((1, 5, 8)), **_BODY},
        like={"pos_embed": T((1, 17, 4)), **_BODY},
    ),
    Example(
        "another width only",
        {"pos_embed": T((1, 5, 8)), **_BODY},
        like={"pos_embed": T((1, 5, 4)), **_BODY},
    ),
    Example(
        "another vocabulary",
        {"wte.weight": T((8, 4)), **_BODY},
        like={"wte.weight": T((12, 4)), **_BODY},
    ),
)


@rule("S503", "position-embedding-resize", Severity.ERROR)
def position_embedding_resize(comparison: Comparison) -> Iterator[Problem]:
    """Report tables of positions with other rows."""
    for found in shapes(comparison).positions:
        cause, way = _words(found)
        advice = f"Build the model for {way}; or interpolate the table to the model's size, and fine-tune."
        yield mismatch(comparison, found.pairs, likewise(found.pairs), cause, advice)


def _words(found: Positions) -> tuple[str, str]:
    """Return what the two sizes mean, and what the model should be built for."""
    if found.grids is None:
        way = f"{found.here:,} positions"
        return f"The checkpoint has {way}, the model {found.there:,}: inputs of another length.", way
    ours, theirs = found.grids
    if ours.window:
        way = f"windows of {ours.side} × {ours.side}"
        return f"The checkpoint was trained with {way}, the model has {theirs.side} × {theirs.side}.", way
    sizes = f"The checkpoint's images have {_grid(ours)}, the model's {_grid(theirs)}"
    if ours.side == theirs.side:
        return f"{sizes}: different tokens before the patches.", f"{_grid(ours)}"
    return f"{sizes}: a different image or patch size.", f"images of {ours.side} × {ours.side} patches"


def _grid(grid: Grid) -> str:
    before = ("", " and a class token", " and two tokens before them")[grid.extra]
    return f"{grid.side} × {grid.side} patches{before}"


@judges(Turn.SHAPE, general=4)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """The pairs of shapes that say so by themselves."""
    found = pairs_for(rest, "S503")
    if found:
        meaning = (
            f"the position embeddings are for a different length or resolution ({both_shapes(found[0])}); no "
            "command of ckptdoctor resizes them"
        )
        yield Cause(meaning, Repair.BY_HAND, (SEE,), mismatched=[pair.key for pair in found])
