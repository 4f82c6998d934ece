"""Edits of tensors in a safetensors file: other entries in the header, and other values where their order changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from json import dumps, loads

from ckptdoctor.checkpoint import DType, KeyPath
from ckptdoctor.checkpoint.dtypes import BY_NAME, BY_SAFETENSORS
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.edits import Cast, Edit, Fill, Reshape
from ckptdoctor.edits.casts import SOURCES, converted
from ckptdoctor.edits.elements import Elements, Shape, View, reshaped
from ckptdoctor.edits.kinds import Compute, Dequantize, Tie
from ckptdoctor.edits.tensors import ENTERING, TENSOR_EDITS, TensorEdit, made, new_keys, place_of, sources, with_new
from ckptdoctor.errors import RefusedError, UnprovenError
from ckptdoctor.formats.safetensors.header import METADATA
from ckptdoctor.formats.safetensors.remarks import quoted
from ckptdoctor.formats.safetensors.spans import Cut, Member, cut
from ckptdoctor.formats.safetensors.values import Piece, Values, made_piece, united
from ckptdoctor.noun import noun

_COMPACT = '{"dtype":"","shape":[],"data_offsets":[0,0]}'  # as safetensors writes an entry


@noun
class Entry:
    """One tensor. ``name`` is its key as JSON, ``text`` what the header says of it, ``pieces`` its values."""

    key: str
    name: str
    text: str
    dtype: DType
    shape: Shape
    pieces: tuple[Piece, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of its values."""
        return sum(piece.length for piece in self.pieces)


def place_in_values(member: Member) -> tuple[int, int]:
    """The first byte of a tensor and the one behind it. Raises UnprovenError for entries that nobody writes so."""
    try:
        begin, end = loads(member.value)["data_offsets"]
    except TypeError as error:  # safetensors also reads a list of the three values, which nobody writes
        raise UnprovenError(f"The entry {quoted(member.key)} is a list, so its place is not edited.") from error
    return begin, end


def edit_tensors(
    header: Cut, pieces: Sequence[Piece], run: Sequence[Edit], ascii_only: bool
) -> tuple[Cut, tuple[Piece, ...]]:
    """Header and values after edits of one kind that touch different tensors. Raises RefusedError."""
    file = _File(header, Values(pieces), ascii_only)
    edits = [edit for edit in run if isinstance(edit, TENSOR_EDITS)]
    for edit in edits:
        file.change(edit)
    file.insert([edit for edit in edits if isinstance(edit, Fill)])
    return file.written()


def cast_tensors(header: Cut, pieces: Sequence[Piece], edit: Cast, ascii_only: bool) -> tuple[Cut, tuple[Piece, ...]]:
    """Header and values after tensors were cast. Raises RefusedError."""
    file = _File(header, Values(pieces), ascii_only)
    file.cast(edit)
    file.insert(())
    return file.written()


class _File:
    """The tensors in the order of the header and in that of their values, while edits change them."""

    def __init__(self, header: Cut, values: Values, ascii_only: bool) -> None:
        self._header = header
        self._ascii_only = ascii_only
        self._entries: dict[str, Entry] = {}
        self._members = {member.key: member for member in header.members}
        self._positions = {key: number for number, key in enumerate(self._members)}
        self._instead: dict[str, list[Entry]] = {}  # what comes in place of a tensor: [] where it goes
        places: dict[str, tuple[int, int]] = {}
        for member in header.members:
            if member.key != METADATA:
                places[member.key] = place_in_values(member)
                self._entries[member.key] = _entry(member, tuple(values.taken(*places[member.key])))
        self._read = dict(self._entries)
        self._recast = False
        self._places = places
        self._order = list(self._members)
        self._in_values = sorted(places, key=places.__getitem__)  # stable: empty ones as in the header

    def change(self, edit: TensorEdit) -> None:
        """Put what the edit makes where its tensors stand; fills come later."""
        given = [self._given(path) for path in sources(edit)]
        if isinstance(edit, Fill):
            return
        results = made(edit, [(each.dtype, _elements(each)) for each in given])
        if isinstance(edit, Reshape):
            self._instead[given[0].key] = [replace(given[0], shape=edit.shape)]
            return
        keys = new_keys(edit) if isinstance(edit, ENTERING) else (given[0].key,)
        new = [self._new(key, given[0], each) for key, each in zip(keys, results, strict=True)]
        if isinstance(edit, (Dequantize, Compute)):
            new = [replace(each, dtype=BY_NAME[edit.dtype]) for each in new]
            self._recast = True
        if isinstance(edit, Tie):
            self._instead[given[0].key] = [given[0], *new]
            return
        self._instead.update((each.key, []) for each in given)
        self._instead[min((each.key for each in given), key=self._positions.__getitem__)] = new

    def cast(self, edit: Cast) -> None:
        """Let tensors have another dtype."""
        for path in dict.fromkeys(edit.paths):
            old = self._given(path)
            if old.dtype.name not in SOURCES:
                raise RefusedError(f"{quoted(old.key)} is {old.dtype.name}, and cannot be cast to {edit.dtype}.")
            if old.dtype.name != edit.dtype:
                made = made_piece(converted(_elements(old), old.dtype, edit))
                self._instead[old.key] = [replace(old, dtype=BY_NAME[edit.dtype], pieces=(made,))]
                self._recast = True

    def _given(self, path: KeyPath) -> Entry:
        found = self._entries.get(path[0]) if len(path) == 1 and isinstance(path[0], str) else None
        if found is None:
            raise RefusedError(f"There is no tensor {quoted('/'.join(map(str, path)))} to change.")
        return found

    def _new(self, key: str, like: Entry, elements: Elements) -> Entry:
        name = like.name if key == like.key else self._name(key)
        return replace(like, key=key, name=name, shape=elements.shape, pieces=(made_piece(elements),))

    def _name(self, key: str) -> str:
        try:
            key.encode("utf-8")
        except UnicodeEncodeError as error:
            raise RefusedError(
                f"{quoted(key)} is no text that UTF-8 can hold, so safetensors cannot either."
            ) from error
        return dumps(key, ensure_ascii=self._ascii_only)

    def insert(self, edits: Sequence[Fill]) -> None:
        """New tensors: in the header behind their siblings, in the values where all stay aligned."""
        self._settle()
        filled: dict[str, Entry] = {}
        like = next(iter(self._entries.values()), None)
        for edit in edits:
            key, dtype = str(edit.path[-1]), BY_NAME.get(edit.dtype)
            if place_of(edit) or dtype is None or dtype.safetensors is None or edit.device != "cpu":
                raise RefusedError(f"A safetensors file cannot hold {quoted(key)} as {edit.dtype} on {edit.device}.")
            self._require_free(key, self._entries)
            (elements,) = made(edit, [])
            text = _COMPACT if like is None else like.text
            filled[key] = Entry(key, self._name(key), text, dtype, edit.shape, (made_piece(elements),))
        if filled:
            self._order = with_new(self._order, filled)
            self._entries.update(filled)
            for bits in dict.fromkeys(each.dtype.bits for each in filled.values()):
                at = self._aligned(bits)
                self._in_values[at:at] = [key for key, each in filled.items() if each.dtype.bits == bits]

    def _aligned(self, bits: int) -> int:
        """Behind the last tensor with elements that wide, as safetensors sorts them; else before all."""
        wide = [number for number, key in enumerate(self._in_values) if self._entries[key].dtype.bits >= bits]
        at = max(wide, default=-1)
        passed = sum(self._entries[key].nbytes for key in self._in_values[: at + 1])
        return at + 1 if passed * 8 % bits == 0 else 0

    def _settle(self) -> None:
        """Let what edits made take its place."""
        if not self._instead:
            return
        taken = {key: each for key, each in self._entries.items() if key not in self._instead}
        for new in self._instead.values():
            for each in new:
                self._require_free(each.key, taken)
                taken[each.key] = each
        before = {key: [each.key for each in new] for key, new in self._instead.items()}
        self._order = [key for old in self._order for key in before.get(old, (old,))]
        self._in_values = [key for old in self._in_values for key in before.get(old, (old,))]
        self._entries = taken
        if self._recast:  # wide elements before narrow ones, as safetensors sorts them: so all of them stay aligned
            self._in_values.sort(key=lambda key: -self._entries[key].dtype.bits)

    def _require_free(self, key: str, taken: dict[str, Entry]) -> None:
        if key in taken:
            raise RefusedError(f"“{key}” is already there; drop or rename it first.")
        if key == METADATA:
            raise RefusedError(f"No tensor can be called “{METADATA}”: safetensors keeps that name for itself.")

    def written(self) -> tuple[Cut, tuple[Piece, ...]]:
        """The header and the values."""
        places: dict[str, tuple[int, int]] = {}
        at = 0
        for key in self._in_values:
            places[key] = at, at + self._entries[key].nbytes
            at = places[key][1]
        members = [self._member(key, places.get(key)) for key in self._order]
        pieces = [piece for key in self._in_values for piece in self._entries[key].pieces]
        return self._header.with_members(members), united(pieces)

    def _member(self, key: str, place: tuple[int, int] | None) -> Member:
        old = self._members.get(key)
        if place is None:
            assert old is not None  # the metadata
            return old
        entry = self._entries[key]
        if old is not None and self._places[key] == place and entry is self._read[key]:
            return old
        text = _described(entry, place, ", " if self._header.colon.endswith(" ") else ",")
        if old is not None:
            return replace(old, value=text)
        return Member(key, entry.name, self._header.colon, text, self._header.comma)


def _entry(member: Member, pieces: tuple[Piece, ...]) -> Entry:
    fields = loads(member.value)
    dtype = BY_SAFETENSORS.get(fields["dtype"]) if isinstance(fields["dtype"], str) else None
    if dtype is None:
        raise UnprovenError(f"The entry {quoted(member.key)} is written in an unusual way, so it is not edited.")
    return Entry(member.key, member.name, member.value, dtype, tuple(fields["shape"]), pieces)


def _elements(entry: Entry) -> Elements:
    """The elements of a tensor as the file has them, or as an edit has made them."""
    width = max(1, entry.dtype.bits // 8)
    if entry.pieces and entry.pieces[0].made is not None:
        return reshaped(entry.pieces[0].made, entry.shape)
    start = entry.pieces[0].offset if entry.pieces else 0
    return View("", start, width, entry.shape, contiguous_stride(entry.shape))


def _described(entry: Entry, place: tuple[int, int], comma: str) -> str:
    """The text of an entry: only what is not so already is written anew, in the style of the file."""
    fields = cut(entry.text)
    said = loads(entry.text)
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
