"""Tells whether a checkpoint and a target are one network in two published layouts, and what becomes of each tensor.

A layout counts only as a whole: every key here is in its table, every key that the target wants comes of it, and
every shape is right afterwards. Names decide, as they were published: no shape tells how rows are laid out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from math import prod

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.expectation import Expected, Reference
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.match.buffers import is_derived
from ckptdoctor.match.meanings import is_code
from ckptdoctor.match.published.catalogue import WAYS
from ckptdoctor.match.published.kernels import KERNELS, kernels, second_biases
from ckptdoctor.match.published.table import GROUPED, ROTARY, ROWS, SAME, STACKED, TURNED, TURNED_ROWS, Published
from ckptdoctor.noun import noun, replace

Here = Mapping[str, Tensor]
Shape = tuple[int, ...]
# a key without its numbers → the rows it may stand in: (literals, row, place in the row, its numbers as they must be)
_Index = Mapping[str, "tuple[tuple[int, int, int, tuple[str, ...]], ...]"]

_ANY = "{}"


@noun
class Piece:
    """Tensors that become others: ``old`` names and ``new`` ones, both in the order of their elements.

    ``how`` is what becomes of the elements (``table``); ``shapes`` are those of the new tensors.
    """

    old: tuple[str, ...]
    new: tuple[str, ...]
    how: str
    shapes: tuple[Shape, ...]

    @property
    def renamed(self) -> bool:
        """Whether only the name changes."""
        return self.how == SAME


@noun(eq=False)
class LayoutConversion:
    """How a checkpoint in one published layout becomes the same network in another one.

    ``way`` is the table. ``dropped`` are keys here that follow from sizes; ``tied`` are (new key, owner): a second name
    that the target asks for. ``names`` are the keys of which nothing but the name changes. ``heads`` are those of
    attention, 0 where no rows are permuted in each; ``lacks`` says why nothing can be done where their number is open.
    ``zeros`` are (new key, one of its shape): what the second code base adds, and the first does not have.
    ``never``: what it lacks nobody can say, and nothing can be done.
    """

    way: Published
    pieces: tuple[Piece, ...]
    dropped: tuple[str, ...]
    tied: tuple[tuple[str, str], ...]
    names: Mapping[str, str]
    heads: int = 0
    lacks: str = ""
    zeros: tuple[tuple[str, str], ...] = ()
    never: bool = False

    @property
    def rotary(self) -> tuple[Piece, ...]:
        """Those of which rows are permuted in each head, so that the number of heads has to be known."""
        return tuple([each for each in self.pieces if each.how in ROTARY])

    def change(self, key: str) -> str:
        """Return the new name of a key of which nothing else changes; any other key as it is."""
        return key if self.lacks else self.names.get(key, key)

    def after(self, here: Here) -> dict[str, Tensor]:
        """Return the tensors under their new names and in their new shapes, each where its elements are now."""
        found: dict[str, Tensor] = {}
        for piece in self.pieces:
            for place, (key, shape) in enumerate(zip(piece.new, piece.shapes, strict=True)):
                old = here[piece.old[min(place, len(piece.old) - 1)]]
                same = old.shape == shape and piece.renamed
                found[key] = old if same else replace(old, shape=shape, stride=contiguous_stride(shape))
        found.update({key: found[owner] for key, owner in (*self.tied, *self.zeros)})
        return found


def layout_conversion(here: Here, reference: Reference) -> LayoutConversion | None:
    """Return the published way from these tensors to what is wanted, or None.

    It is the one that leaves least over.
    """
    wanted = reference.tensors
    if not here or not wanted:
        return None
    ours, theirs = "\n".join(here), "\n".join(wanted)
    found: list[tuple[int, int, LayoutConversion]] = []
    for way in WAYS:
        if _leaf(way.rows[0].one[0]) in ours and _leaf(way.rows[0].other[0]) in theirs:
            made = _by(way, here, reference)
            if made is not None:
                found.append((sum(key not in wanted for piece in made.pieces for key in piece.new), len(found), made))
    return min(found)[2] if found else _of_kernels(here, reference)


def _of_kernels(here: Here, reference: Reference) -> LayoutConversion | None:
    """Return the way from the layers of Keras or Flax to the same layers of torch."""
    found, never = kernels(here, reference)
    if not found:
        return None
    pieces = tuple([Piece((old,), new, how, (shape,) * len(new)) for old, new, how, shape in found])
    names = {piece.old[0]: piece.new[0] for piece in pieces if piece.renamed}
    made = [name for piece in pieces for name in piece.new]
    zeros = () if never else tuple(second_biases(made, reference.tensors))
    return LayoutConversion(KERNELS, pieces, (), (), names, zeros=zeros, lacks=never, never=bool(never))


def _leaf(template: str) -> str:
    """Return what a key of this kind must hold, whatever its numbers are."""
    return template.rpartition(_ANY)[2]


def _by(way: Published, here: Here, reference: Reference) -> LayoutConversion | None:
    """Return what this way makes of the tensors, where it accounts for all of them and for all that is wanted."""
    wanted = reference.tensors
    leads = _lead(here, way.rows[0].one[0]), _lead(wanted, way.rows[0].other[0])
    if leads[0] is None or leads[1] is None:
        return None
    groups: dict[tuple[int, tuple[str, ...]], dict[tuple[int, int], str]] = {}
    dropped, pieces = [], []
    for key, tensor in here.items():
        plain = key[len(leads[0]) :] if key.startswith(leads[0]) else None
        found = None if plain is None else _place(plain, _index(way))
        if found is not None:
            row, place, numbers = found
            each = way.rows[row]
            apart = each.how == STACKED and _many(each.one, each.other)
            expert, numbers = (int(numbers[-1]), numbers[:-1]) if apart else (0, numbers)
            groups.setdefault((row, numbers), {})[expert, place] = key
        elif way.rest and key in wanted and wanted[key].shape == tensor.shape and not _odd(way, tensor.shape):
            pieces.append(Piece((key,), (key,), SAME, (tensor.shape,)))
        elif plain is not None and (_is_left(plain, way) or is_derived(key, tensor.shape, tensor.dtype)):
            dropped.append(key)
        else:
            return None
    for (row, numbers), keys in groups.items():
        piece = _piece(way, row, numbers, keys, leads[1], here, wanted)
        if piece is None:
            return None
        pieces.append(piece)
    if way.rest and all(piece.renamed for piece in pieces):
        return None  # what is called alike on both sides is no other layout
    if way.shown and not any(_shows(piece, wanted) for piece in pieces):
        return None
    return _whole(way, pieces, dropped, leads[1], reference)


def _odd(way: Published, shape: Shape) -> bool:
    """Return whether a matrix outside of every row may be transposed as others are: a square shape shows nothing."""
    return way.shown and len(shape) == 2 and shape[0] == shape[1]


def _shows(piece: Piece, wanted: Mapping[str, Expected]) -> bool:
    """Return whether the shape that is wanted shows that this matrix is turned."""
    return piece.how == TURNED and piece.new[0] in wanted and len(set(piece.shapes[0])) > 1


def _many(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether the first side of a stack is the one whose experts are apart: it has one number more."""
    return one[0].count(_ANY) > other[0].count(_ANY)


def _whole(
    way: Published, pieces: list[Piece], dropped: list[str], lead: str, reference: Reference
) -> LayoutConversion | None:
    """Return the conversion, where nothing that is wanted is missing but what is tied or follows from sizes."""
    made = {key for piece in pieces for key in piece.new}
    if len(made) != sum(len(piece.new) for piece in pieces):
        return None
    tied = [(lead + key, lead + owner) for key, owner in way.tied if lead + owner in made]
    twins = {key: group for group in reference.ties for key in group}
    ties = []
    for key, expected in reference.tensors.items():
        if key in made or _is_left(key[len(lead) :], way) or is_derived(key, expected.shape, expected.dtype):
            continue
        owner = next((owner for name, owner in tied if name == key), None)
        if any(each in made for each in twins.get(key, ())):
            continue  # the target itself says that it is one with what is there
        if owner is None or reference.tensors[owner].shape != expected.shape:
            return None
        ties.append((key, owner))
    names = {piece.old[0]: piece.new[0] for piece in pieces if piece.renamed}
    return LayoutConversion(way, tuple(pieces), tuple(dropped), tuple(ties), names)


# ---- names


def _lead(keys: Iterable[str], template: str) -> str | None:
    """Return what precedes the one key of this kind, and so precedes all of them.

    It is None where there is not exactly one.
    """
    leads = {key[: len(key) - len(template)] for key in keys if key.endswith(template)}
    leads = {lead for lead in leads if not lead or lead.endswith(".")}
    return leads.pop() if len(leads) == 1 else None


@cache
def _index(way: Published) -> _Index:
    found: dict[str, list[tuple[int, int, int, tuple[str, ...]]]] = {}
    for row, each in enumerate(way.rows):
        for place, template in enumerate(each.one):
            plain, numbers = _numberless(template)
            found.setdefault(plain, []).append((numbers.count(_ANY), row, place, numbers))
    return {plain: tuple(sorted(places)) for plain, places in found.items()}


def _numberless(key: str) -> tuple[str, tuple[str, ...]]:
    """Return a key with ``{}`` for its numbers, and these."""
    tokens = key.split(".")
    numbers = tuple([token for token in tokens if _is_number(token)])
    return ".".join(_ANY if _is_number(token) else token for token in tokens), numbers


def _is_number(token: str) -> bool:
    return token == _ANY or (token.isdecimal() and token.isascii() and str(int(token[:9])) == token)


def _place(key: str, index: _Index) -> tuple[int, int, tuple[str, ...]] | None:
    """Return the row of a key, its place there, and the numbers that the row leaves open.

    The most literal row comes first.
    """
    plain, numbers = _numberless(key)
    for _, row, place, wanted in index.get(plain, ()):
        if all(want in (_ANY, have) for want, have in zip(wanted, numbers, strict=True)):
            return row, place, tuple([have for want, have in zip(wanted, numbers, strict=True) if want == _ANY])
    return None


def _is_left(key: str, way: Published) -> bool:
    return _numberless(key)[0] in way.left


# ---- shapes


def _piece(
    way: Published,
    row: int,
    numbers: tuple[str, ...],
    keys: Mapping[tuple[int, int], str],
    lead: str,
    here: Here,
    wanted: Mapping[str, Expected],
) -> Piece | None:
    """Return what becomes of the tensors of one row with these numbers.

    It is None where one is not there, or no shape is right.
    """
    each = way.rows[row]
    old = tuple([keys[place] for place in sorted(keys)])
    shapes = [here[key].shape for key in old]
    if each.how == STACKED:
        experts = _experts(each.one, each.other, keys, shapes)
        if not experts:
            return None
        new = tuple(_stacked_names(each.other, numbers, experts)) if len(old) == 1 else _filled(each.other, numbers)
    else:
        if len(old) != len(each.one):
            return None
        new = _filled(each.other, numbers)
    new = tuple([lead + key for key in new])
    told = [wanted[key].shape if key in wanted else None for key in new]
    if each.how == GROUPED and None in told:  # as in the first of the layers
        first = [lead + key for key in _filled(each.other, ("0",) * len(numbers))]
        told = [wanted[key].shape if key in wanted else None for key in first]
    made = _shapes(each.how, shapes, told)
    if made is None or any(not _is_plain(here[key]) for key in old):
        return None
    if any(is_code(here[key], wanted[name]) for key in old for name in new if name in wanted):
        return None
    return Piece(old, new, each.how, tuple(made))


def _filled(templates: Iterable[str], numbers: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([template.format(*numbers) for template in templates])


def _experts(
    one: tuple[str, ...], other: tuple[str, ...], keys: Mapping[tuple[int, int], str], shapes: list[Shape]
) -> int:
    """Return how many experts there are, counted from 0 or from 1.

    It is 0 where one of them, or one of its tensors, is missing.
    """
    if not _many(one, other):
        return shapes[0][0] if len(shapes) == 1 and len(shapes[0]) == 3 else 0
    count, first = len(keys) // len(one), min(keys)[0]
    whole = {(first + expert, place) for expert in range(count) for place in range(len(one))}
    return count if first in (0, 1) and set(keys) == whole else 0


def _stacked_names(templates: tuple[str, ...], numbers: tuple[str, ...], experts: int) -> Iterator[str]:
    for expert in range(experts):
        yield from _filled(templates, (*numbers, str(expert)))


def _is_plain(tensor: Tensor) -> bool:
    return not tensor.parts and tensor.layout == "strided" and tensor.dtype.kind in ("float", "complex")


def _shapes(how: str, old: list[Shape], new: list[Shape | None]) -> list[Shape] | None:
    """Return the shapes of the new tensors, as wanted where that is said, or None where they cannot be these."""
    if how == ROWS:
        return _in_rows(old, new)
    if how == GROUPED:
        return _in_groups(old, new)
    if how == TURNED_ROWS:
        return _in_columns(old, new)
    if how == STACKED:
        return _in_slices(old, new)
    made = old[0][::-1] if how == TURNED else old[0]
    told = new[0]
    if (how == TURNED or how in ROTARY) and len(made) != 2:
        return None
    if how == SAME and told is not None and _wide(told) == _wide(made):
        return [told]
    return [made] if told in (None, made) else None


def _wide(shape: Shape) -> Shape:
    return tuple([size for size in shape if size != 1])


def _in_rows(old: list[Shape], new: list[Shape | None]) -> list[Shape] | None:
    """Return equal parts of one, or one of equal parts."""
    if len(old) == 1:
        if not old[0] or old[0][0] % len(new):
            return None
        made = [(old[0][0] // len(new), *old[0][1:])] * len(new)
    else:
        if len(set(old)) != 1 or not old[0]:
            return None
        made = [(old[0][0] * len(old), *old[0][1:])]
    return made if all(told in (None, each) for told, each in zip(new, made, strict=True)) else None


def _in_columns(old: list[Shape], new: list[Shape | None]) -> list[Shape] | None:
    """Return the same of the columns of one, which are turned into rows.

    It may be one whose columns are the rows of several.
    """
    if len(old[0]) != 2:
        return None
    if len(old) == 1:
        return _in_rows([old[0][::-1]], new)
    made = _in_rows(old, [told and told[::-1] for told in new])
    return made and [shape[::-1] for shape in made]


def _in_groups(old: list[Shape], new: list[Shape | None]) -> list[Shape] | None:
    """Return queries, keys and values of one, as high as is wanted of each; or one of all three."""
    parts = [shape for shape in (new if len(old) == 1 else old) if shape]
    if len(parts) < 3 or len({shape[1:] for shape in parts}) != 1:
        return None
    queries, keys, values = [shape[0] for shape in parts]
    if keys != values or not keys or queries % keys:
        return None
    whole = (queries + keys + values, *parts[0][1:])
    if len(old) == 1:
        return parts if old[0] == whole else None
    return [whole] if new[0] in (None, whole) else None


def _in_slices(old: list[Shape], new: list[Shape | None]) -> list[Shape] | None:
    """Return slices of one along its first dimension, each of several tensors along its rows; or one of them."""
    if len(old) == 1:
        experts, rows, *rest = old[0]
        parts = len(new) // experts if experts else 0
        if not parts or rows % parts:
            return None
        made: list[Shape] = [(rows // parts, *rest)] * len(new)
    else:
        told = new[0]
        if len(set(old)) != 1 or len(old[0]) != 2 or told is None or len(told) != 3 or not told[0]:
            return None
        experts = told[0]
        made = [(experts, prod(old[0]) * len(old) // experts // old[0][1], old[0][1])]
        if len(old) % experts:
            return None
    return made if all(told in (None, each) for told, each in zip(new, made, strict=True)) else None
