"""A checkpoint is brought from one published layout to another by edits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from ckptdoctor.checkpoint import KeyPath, Tensor
from ckptdoctor.edits import Drop, Edit, Fill, Fuse, Rename, Reshape, Split, Transpose
from ckptdoctor.edits.kinds import Tie
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.published.matching import LayoutConversion, Piece
from ckptdoctor.match.published.table import (
    DEPTHWISE,
    GATE_BIASES,
    GATES,
    GROUPED,
    KERNEL,
    QUERIES,
    ROTARY,
    ROWS,
    STACKED,
    TURNED,
    TURNED_ROWS,
)
from ckptdoctor.match.shapes.projections import HEAD_SIZES
from ckptdoctor.rules.kit.choosing import auto_option
from ckptdoctor.wording import plural

_NUMBERS = 3  # numbers of heads that are offered

# the two dimensions that come first afterwards, counted from the last
_DIMS = {TURNED: (-1, -2), KERNEL: (-1, -2), DEPTHWISE: (-2, -1), GATES: (-1, -2)}
_CUT = (ROWS, GROUPED, TURNED_ROWS, STACKED)
_GATED = (GATES, GATE_BIASES)
_SECOND_FIRST = (1, 0, 2)  # where z, r, h stand among r, z, n, and the other way round


def layout_edits(comparison: Comparison) -> tuple[Edit, ...]:
    """The edits of the published conversion; none where there is none, or it lacks something."""
    found = comparison.conversion
    if found is None or found.lacks:
        return ()
    gone = [comparison.before_prefix.here[key].path for key in found.dropped]
    gone += [each.drops.path for each in comparison.name_fixes if each.drops is not None]
    edits = tuple(_edits(found, comparison.before_prefix.here))
    return (Drop(tuple(gone)), *edits) if gone else edits


def lacking(comparison: Comparison) -> str:
    """What has to be said before the conversion can be made; "" where nothing has. See ``commands_with_heads``."""
    found = comparison.conversion
    if found is None or not found.lacks:
        return ""
    if found.never:
        return found.lacks
    return f"rows of queries and keys are permuted in each head, and {found.lacks}. Say how many there are, such as:"


def commands_with_heads(comparison: Comparison) -> tuple[str, ...]:
    """The commands that say how many heads there are, for the sizes that are most frequent; see ``lacking``."""
    found = comparison.conversion
    if found is None or not found.lacks:
        return ()
    rows = [comparison.before_prefix.here[piece.old[0]].shape[0] for piece in found.pieces if piece.how == QUERIES]
    most = min(rows, default=0)
    heads = [most // size for size in HEAD_SIZES if most > size and most % size == 0][:_NUMBERS]
    return tuple([f"ckptdoctor fix FILE {auto_option(comparison)} --heads {number}" for number in heads])


def conversion_title(found: LayoutConversion) -> str:
    """What the edits do, in a few words."""
    said = []
    for how, what in (
        (ROTARY, "rows of {} permuted in each head"),
        ((ROWS, GROUPED, TURNED_ROWS), "{} split or fused"),
        ((TURNED, TURNED_ROWS, KERNEL, DEPTHWISE, GATES), "{} transposed"),
        ((GATES, GATE_BIASES), "gates of {} in another order"),
        ((STACKED,), "{} of experts"),
    ):
        number = sum(piece.how in how for piece in found.pieces)
        said += [what.format(plural(number, "tensor"))] if number else []
    more = f": {', '.join(said)}" if said else ""
    return f"from {found.way.one} to {found.way.other}{more}"


def _edits(found: LayoutConversion, here: Mapping[str, Tensor]) -> Iterator[Edit]:
    """One kind of edit after another: those of one kind are carried out together."""
    queries = [piece for piece in found.pieces if piece.how == QUERIES]
    size = here[queries[0].old[0]].shape[0] // found.heads if found.rotary else 0
    rotary = [here[piece.old[0]] for piece in found.rotary]
    flat = [piece for piece in found.pieces if piece.renamed and here[piece.old[0]].shape != piece.shapes[0]]
    for tensor in rotary:
        rows, width = tensor.shape
        inner = (2, size // 2) if found.way.back else (size // 2, 2)
        yield Reshape(tensor.path, (rows // size, *inner, width))
    for piece in flat:
        yield Reshape(here[piece.old[0]].path, piece.shapes[0])
    for tensor in rotary:
        yield Transpose(tensor.path, (0, 2, 1, 3))
    for piece in found.pieces:
        if piece.how in _DIMS:
            rank = len(here[piece.old[0]].shape)
            yield Transpose(here[piece.old[0]].path, (*[rank + dim for dim in _DIMS[piece.how]], *range(rank - 2)))
    for tensor in rotary:
        yield Reshape(tensor.path, tensor.shape)
    for piece in found.pieces:
        if piece.how == DEPTHWISE:
            yield Reshape(here[piece.old[0]].path, piece.shapes[0])
    single = [piece for piece in found.pieces if piece.how not in (*_CUT, *_GATED)]
    pairs = [(here[piece.old[0]].key, piece.new[0]) for piece in single]
    place = next(iter(here.values())).path[:-1]
    renames = tuple([(old, new) for old, new in pairs if old != new])
    if renames:
        yield Rename(place, renames)
    yield from _cut(place, sorted([piece for piece in found.pieces if piece.how in _CUT], key=_kind), here)
    yield from _gates([piece for piece in found.pieces if piece.how in _GATED], here)
    for key, owner in found.tied:
        yield Tie((*place, owner), key)
    sources = {piece.new[0]: here[piece.old[0]] for piece in found.pieces}
    for key, owner in found.zeros:
        yield Fill((*place, key), sources[owner].dtype.name, sources[owner].shape, 0.0)


def _gates(pieces: Sequence[Piece], here: Mapping[str, Tensor]) -> Iterator[Edit]:
    """The gates in their new order; two biases that are rows of one tensor laid flat before."""
    for piece in pieces:
        if piece.how == GATE_BIASES:
            yield Reshape(here[piece.old[0]].path, (2 * piece.shapes[0][0],))
    for piece in pieces:
        rows = piece.shapes[0][0]
        width = rows // len(_SECOND_FIRST)
        starts = [(key, at * rows + gate * width) for at, key in enumerate(piece.new) for gate in _SECOND_FIRST]
        yield Split(here[piece.old[0]].path, tuple([(key, start, start + width) for key, start in starts]))


def _cut(place: KeyPath, pieces: Sequence[Piece], here: Mapping[str, Tensor]) -> Iterator[Edit]:
    """What is split, and what is fused; the stacks of experts laid flat before, or set up afterwards."""
    apart = [piece for piece in pieces if len(piece.old) == 1]
    for piece in apart:
        if piece.how == STACKED:
            experts, rows, *rest = here[piece.old[0]].shape
            yield Reshape(here[piece.old[0]].path, (experts * rows, *rest))
    for piece in apart:
        ends = list(accumulate([shape[0] for shape in piece.shapes]))
        parts = tuple(zip(piece.new, [0, *ends[:-1]], ends, strict=True))
        yield Split(here[piece.old[0]].path, parts, 1 if piece.how == TURNED_ROWS else 0)
    whole = [piece for piece in pieces if len(piece.old) > 1]
    for piece in whole:
        yield Fuse(tuple([here[key].path for key in piece.old]), piece.new[0])
    for piece in whole:
        if piece.how == STACKED:
            yield Reshape((*place, piece.new[0]), piece.shapes[0])
    for piece in pieces:
        if piece.how == TURNED_ROWS:
            yield from (Transpose((*place, key)) for key in piece.new)


def _kind(piece: Piece) -> int:
    return _CUT.index(piece.how)
