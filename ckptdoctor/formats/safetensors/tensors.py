"""Writes the tensors that are wanted into a safetensors file: their entries in the header, and their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as Lookup
from json import dumps, loads

from ckptdoctor.checkpoint import DType, FileSource, Mapping, Node, Part, Tensor, show_part
from ckptdoctor.checkpoint.changed_trees import source_of
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.edits.elements import Elements, Shape, nbytes
from ckptdoctor.errors import RefusedError, UnprovenError
from ckptdoctor.formats.elements import one_after_another
from ckptdoctor.formats.safetensors.entries import Info
from ckptdoctor.formats.safetensors.header import METADATA, Header, quoted
from ckptdoctor.formats.safetensors.spans import Cut, Member, cut
from ckptdoctor.noun import noun, replace
from ckptdoctor.writing.recipe import Copy, Generated, Segment

# an entry as nearly all writers put it: all but its dtype and its offsets, which need not be parsed then
_PLAIN = re.compile(
    r'(\{\s*"dtype"\s*:\s*")\w+("\s*,\s*"shape"\s*:\s*\[[\d,\s]*\]\s*,\s*'
    r'"data_offsets"\s*:\s*\[\s*)\d+(\s*,\s*)\d+(\s*\]\s*\})',
    re.ASCII,
)
_COMPACT = '{"dtype":"","shape":[],"data_offsets":[0,0]}'  # as safetensors writes an entry


@noun
class Entry:
    """One tensor of the copy. ``was`` is its name in the file, None for one that is new; ``piece`` are its values."""

    key: str
    was: str | None
    dtype: DType
    shape: Shape
    piece: Piece


def with_tensors(
    text: Cut, header: Header, wanted: Wanted, quote: Callable[[str], str]
) -> tuple[Cut, tuple[Piece, ...]]:
    """Return the header's text with the wanted tensors in the place of the file's, and all values in their order.

    ``quote`` gives a name as JSON. Raises RefusedError for what safetensors cannot hold.
    """
    if not isinstance(wanted.contents.tree, Mapping):
        raise RefusedError("A safetensors file holds one flat set of tensors, and nothing else.")
    named = {id(tensor): tensor.key for tensor in wanted.original.tensors}
    entries = [_entry(part, node, named, header, wanted) for part, node in wanted.contents.tree.entries]
    in_values = _in_order_of_values(entries, header)
    places: dict[str, tuple[int, int]] = {}
    at = 0
    for each in in_values:
        places[each.key] = at, at + each.piece.length
        at += each.piece.length
    writer = _Members(text, header, quote)
    members = [writer.member(each, places[each.key]) for each in entries]
    number = {member.key: index for index, member in enumerate(text.members)}
    if METADATA in number:
        before = sum(each.was is not None and number[each.was] < number[METADATA] for each in entries)
        members.insert(before, text.members[number[METADATA]])
    return text.with_members(members), united([each.piece for each in in_values])


def _entry(part: Part, node: Node, named: dict[int, str], header: Header, wanted: Wanted) -> Entry:
    key = show_part(part)
    if not isinstance(node, Tensor) or not isinstance(part, str) or node.storage is None or node.parts:
        raise RefusedError(f"A safetensors file cannot hold {key}: it holds plain tensors under keys that are strings.")
    was = named.get(id(source_of(node)))
    if part == METADATA:
        who = "No tensor can be" if was is None else f'"{was}" cannot be'
        raise RefusedError(f'{who} called "{METADATA}": safetensors reserves that name.')
    if node.dtype.safetensors is None or node.device != "cpu":
        raise RefusedError(f"A safetensors file cannot hold {key} as {node.dtype.name} on {node.device}.")
    holds = wanted.remade.get(node.storage.key)
    if holds is not None:
        return Entry(part, was, node.dtype, node.shape, made_piece(holds))
    info = _info(header, node.storage.key)
    return Entry(part, was, node.dtype, node.shape, Piece(header.data + info.begin, max(0, info.end - info.begin)))


def _info(header: Header, name: str) -> Info:
    found = header.entries[name]
    if isinstance(found, str):
        raise UnprovenError(f"The entry {quoted(name)} {found}, so it is not edited.")
    return found


def _in_order_of_values(entries: list[Entry], header: Header) -> list[Entry]:
    """Return where the file has them; new ones where all stay aligned.

    Where the dtype of one is another, wide elements come before narrow ones, as safetensors sorts them.
    """
    kept = [(_info(header, each.was), each) for each in entries if each.was is not None]
    made = [each for _, each in sorted(kept, key=lambda pair: (pair[0].begin, pair[0].end))]
    fresh = [each for each in entries if each.was is None]
    for bits in dict.fromkeys(each.dtype.bits for each in fresh):
        at = _aligned(made, bits)
        made[at:at] = [each for each in fresh if each.dtype.bits == bits]
    if any(info.dtype.bits != each.dtype.bits for info, each in kept):
        made.sort(key=lambda each: -each.dtype.bits)
    return made


def _aligned(entries: list[Entry], bits: int) -> int:
    """Return a place behind the last tensor with elements that wide, as safetensors sorts; else before all."""
    wide = [number for number, each in enumerate(entries) if each.dtype.bits >= bits]
    at = max(wide, default=-1)
    passed = sum(each.piece.length for each in entries[: at + 1])
    return at + 1 if passed * 8 % bits == 0 else 0


class _Members:
    """Writes entries in the style of the file: only what differs is rewritten."""

    def __init__(self, text: Cut, header: Header, quote: Callable[[str], str]) -> None:
        self._text = text
        self._header = header
        self._quote = quote
        self._old = {member.key: member for member in text.members}
        self._like = next((member.value for member in text.members if member.key != METADATA), _COMPACT)
        self._comma = ", " if text.colon.endswith(" ") else ","

    def member(self, entry: Entry, place: tuple[int, int]) -> Member:
        """Return what the header says about a tensor whose values are there."""
        key = entry.key
        if entry.was is None:
            said = _described(self._like, entry, place, self._comma)
            return Member(key, self._name(key), self._text.colon, said, self._text.comma)
        old = self._old[entry.was]
        made = old if key == entry.was else replace(old, key=key, name=self._name(key))
        was = _info(self._header, entry.was)
        if was == (entry.dtype, entry.shape, *place):
            return made
        plain = _PLAIN.fullmatch(old.value) if was.shape == entry.shape else None
        if plain is None:
            return replace(made, value=_described(old.value, entry, place, self._comma))
        before, shape, between, after = plain.groups()
        said = f"{before}{entry.dtype.safetensors}{shape}{place[0]}{between}{place[1]}{after}"
        return replace(made, value=said)

    def _name(self, key: str) -> str:
        return self._old[key].name if key in self._old else self._quote(key)


def _described(text: str, entry: Entry, place: tuple[int, int], comma: str) -> str:
    """Return the text of an entry: only what differs is rewritten, in the style of the file."""
    said = loads(text)
    if not isinstance(said, dict):  # safetensors also reads a list of the three values, which nobody writes
        raise UnprovenError(f"The entry {quoted(entry.key)} is a list, so it is not edited.")
    fields = cut(text)
    wanted = {"dtype": entry.dtype.safetensors, "shape": list(entry.shape), "data_offsets": list(place)}
    members = [_field(each, said.get(each.key), wanted.get(each.key), comma) for each in fields.members]
    return fields.with_members(members).text


def _field(field: Member, old: object, new: object, comma: str) -> Member:
    if new is None or old == new:
        return field
    if field.key == "data_offsets" and isinstance(new, list):
        numbers: Iterator[int] = iter(new)
        return replace(field, value=re.sub(r"\d+", lambda _: str(next(numbers)), field.value))
    return replace(field, value=dumps(new, separators=(comma, ":")))


# ---- what follows the header: ranges of the original's values, and values that edits make, one after another


@noun
class Piece:
    """``length`` bytes at ``offset`` of the original, or those of ``made``, which are views of its bytes."""

    offset: int
    length: int
    made: Elements | None = None


def made_piece(elements: Elements) -> Piece:
    """Return all bytes of these elements."""
    return Piece(0, nbytes(elements), elements)


def united(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return the same bytes with ranges joined where they meet, and without empty ones."""
    found: list[Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if not piece.length:
            continue
        if last and last.made is None and piece.made is None and last.offset + last.length == piece.offset:
            found[-1] = replace(last, length=last.length + piece.length)
        else:
            found.append(piece)
    return tuple(found)


_TOGETHER = 1 << 20  # bytes that are made in one go, where there are more pieces than one


def segments(path: str, pieces: Sequence[Piece], storages: Lookup[str, int]) -> Iterator[Segment]:
    """Yield how to write the values; ``storages`` says where those of the original begin."""
    some: list[Elements] = []
    held = 0
    for piece in (*pieces, None):
        if some and (piece is None or piece.made is None or held + piece.length > _TOGETHER):
            yield Generated(held, _Maker(path, tuple(some), storages))
            some, held = [], 0
        if piece is None:
            continue
        if piece.made is not None:
            some.append(piece.made)
            held += piece.length
        elif piece.length:
            yield Copy(piece.offset, piece.length)


@noun
class _Maker:
    """Makes the bytes of elements, one after another, out of the file at ``path``, which is opened each time."""

    path: str
    made: tuple[Elements, ...]
    storages: Lookup[str, int]

    def __call__(self) -> Iterator[bytes]:
        with FileSource(self.path) as source:
            yield from one_after_another(
                self.made, lambda key, offset, length: source.read(self.storages[key] + offset, length)
            )
