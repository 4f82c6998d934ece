"""Writes an edited copy: a patched header, and the values as they are, copied by range.

Only the text of what an edit touches changes in the header; everything else stays as its writer wrote it, and the
whole is padded with blanks so that the values begin at a multiple of eight bytes, as safetensors itself does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from json import dumps
from typing import Any

from ckptdoctor.checkpoint import KeyPath, NoteKind, Source, show_path
from ckptdoctor.edits import (
    Cast,
    Clone,
    Compact,
    Convert,
    Densify,
    Drop,
    Edit,
    Flatten,
    MakeContiguous,
    MoveToCpu,
    Rename,
    RenameModules,
    Renumber,
    Reorder,
    Replace,
    Retag,
    SetMetadata,
    SetSuffix,
    TakeRoot,
    TextMetadata,
    Truncate,
)
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.edits.tensors import TENSOR_EDITS, runs
from ckptdoctor.errors import RefusedError, UnprovenError
from ckptdoctor.formats.safetensors.header import METADATA, Header, header_bytes
from ckptdoctor.formats.safetensors.reader import header_of
from ckptdoctor.formats.safetensors.remarks import quoted
from ckptdoctor.formats.safetensors.signature import LENGTH_BYTES, MAX_HEADER_BYTES, NAME
from ckptdoctor.formats.safetensors.spans import Cut, Member, cut
from ckptdoctor.formats.safetensors.tensors import cast_tensors, edit_tensors, place_in_values
from ckptdoctor.formats.safetensors.values import Piece, Values, segments, united
from ckptdoctor.noun import noun
from ckptdoctor.wording import plural
from ckptdoctor.writing.recipe import Literal, Recipe

_ALIGNMENT = 8

# what keeps a header from being edited: readers disagree about it, or refuse it
_BROKEN = (NoteKind.HEADER_INVALID, NoteKind.OFFSETS_INVALID, NoteKind.DUPLICATE_KEY, NoteKind.TRUNCATED)

# how the one fault begins that an edit heals (formats.safetensors.header)
_ODD_METADATA = f"the {METADATA} entry "

_BYTES_OF_THEIR_OWN = "each tensor of a safetensors file has its own bytes, in C order and without gaps"


@noun
class _State:
    """The file between two edits: its header in pieces, and which ranges of the original's values are kept."""

    header: Cut
    kept: tuple[Piece, ...]
    ascii_only: bool


def rewrite(source: Source, wanted: Wanted) -> Recipe:
    """How to write the file with the edits applied that lead to what is wanted, one after another.

    Raises UnprovenError when the header is one that readers disagree about, RefusedError for an edit that is
    impossible, and DamagedError when the header cannot be read.
    """
    edits = wanted.edits
    header = header_of(source)
    _require_a_sound_header(source, header, edits)
    text = header_bytes(source).decode("utf-8")
    kept = (Piece(header.data, header.end - header.data),)
    state = _State(_proven(text, header), kept, _is_ascii_style(text))
    for run in runs(edits):
        arranging = isinstance(run[0], TENSOR_EDITS)
        state = _edit_tensors(state, run) if arranging else _APPLY[type(run[0])](state, run[0])
    head = _padded(state.header.text)
    if len(head) > MAX_HEADER_BYTES:
        raise RefusedError(
            f"The header would have {len(head):,} bytes; safetensors reads {MAX_HEADER_BYTES:,} at most."
        )
    first = Literal(len(head).to_bytes(LENGTH_BYTES, "little") + head)
    return Recipe(source.file, (first, *segments(source.file, state.kept)))


def _require_a_sound_header(source: Source, header: Header, edits: Sequence[Edit]) -> None:
    healed = any(isinstance(edit, TextMetadata) for edit in edits)
    for note in header.notes:
        if note.kind in _BROKEN and not (healed and note.message.startswith(_ODD_METADATA)):
            raise UnprovenError(f"The file is not edited, because its header is in doubt: {note.message}.")
    lengths = [edit.length for edit in edits if isinstance(edit, Truncate)]
    if any(length != header.end for length in lengths):
        raise RefusedError(f"The last tensor ends at byte {header.end:,}: that is the only place to cut the file.")
    if source.size > header.end and not lengths:
        extra = source.size - header.end
        raise RefusedError(
            f"{plural(extra, 'byte follows', 'bytes follow')} the last tensor, which a copy would lose; cut the "
            "file off there first."
        )


def _proven(text: str, header: Header) -> Cut:
    """The header in pieces, once it is proven that they are the entries that were read, and give the same text."""
    pieces = cut(text)
    names = [member.key for member in pieces.members if member.key != METADATA]
    if names != list(header.entries):
        raise UnprovenError("The entries of the header are not the ones that were read, so it is not edited.")
    return pieces


def _is_ascii_style(text: str) -> bool:
    """Whether the writer escapes everything that is not ASCII, as Python's json does."""
    return text.isascii() and re.search(r"\\u00[89a-f]|\\u[1-9a-fA-F]|\\u0[1-9a-fA-F]", text) is not None


def _padded(text: str) -> bytes:
    """The header's bytes, with blanks up to a multiple of eight (as Rust's ``prepare`` writes them)."""
    data = text.rstrip(" \t\r\n").encode("utf-8")
    return data + b" " * (-len(data) % _ALIGNMENT)


def _quoted(text: str, state: _State) -> str:
    """A name or value as JSON, in the style of the file."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RefusedError(f"{quoted(text)} is no text that UTF-8 can hold, so safetensors cannot either.") from error
    return dumps(text, ensure_ascii=state.ascii_only)


def _rename(state: _State, edit: Rename) -> _State:
    if edit.state_dict:
        raise _missing(edit.state_dict)
    names = dict(edit.pairs)
    keys = {member.key for member in state.header.members} - {METADATA}
    for old in names:
        if old not in keys:
            raise RefusedError(f"There is no key “{old}” in (root) to rename.")
    owners: dict[str, str] = {METADATA: METADATA}
    members = []
    for member in state.header.members:
        new = member.key if member.key == METADATA else names.get(member.key, member.key)
        if member.key != METADATA and new in owners:
            raise _collision(owners[new], member.key, new)
        owners[new] = member.key
        members.append(member if new == member.key else replace(member, key=new, name=_quoted(new, state)))
    return replace(state, header=state.header.with_members(members))


def _collision(one: str, other: str, name: str) -> RefusedError:
    if name == METADATA:
        return RefusedError(f"“{other}” cannot be called “{METADATA}”: safetensors keeps that name for itself.")
    if name in (one, other):
        moving = other if one == name else one
        return RefusedError(f"“{moving}” would become “{name}”, but “{name}” is already there; drop or rename one.")
    return RefusedError(f"“{one}” and “{other}” would both become “{name}”; drop or rename one of them.")


def _missing(path: KeyPath) -> RefusedError:
    return RefusedError(f"There is nothing at {show_path(path)}: a safetensors file holds one flat set of tensors.")


def _drop(state: _State, edit: Drop) -> _State:
    """Leave tensors out; those behind them move up."""
    gone = set()
    names = {member.key for member in state.header.members} - {METADATA}
    for path in edit.paths:
        if len(path) != 1 or path[0] not in names:
            raise _missing(path)
        gone.add(path[0])
    places = {member.key: place_in_values(member) for member in state.header.members if member.key != METADATA}
    moved: dict[str, tuple[int, int]] = {}
    pieces: list[tuple[int, int]] = []
    at = 0
    for name, (begin, end) in sorted(places.items(), key=lambda item: item[1]):
        if name not in gone:
            moved[name] = (at, at + end - begin)
            pieces.append((begin, end))
            at += end - begin
    members = [
        member if member.key == METADATA else _moved(member, places[member.key], moved[member.key])
        for member in state.header.members
        if member.key not in gone
    ]
    return replace(state, header=state.header.with_members(members), kept=_taken(state.kept, pieces))


def _moved(member: Member, old: tuple[int, int], new: tuple[int, int]) -> Member:
    """The member with other offsets; nothing else in its text changes."""
    if old == new:
        return member
    fields = cut(member.value)
    numbers = iter(new)
    made = [
        replace(field, value=re.sub(r"\d+", lambda _: str(next(numbers)), field.value))
        if field.key == "data_offsets"
        else field
        for field in fields.members
    ]
    return replace(member, value=fields.with_members(made).text)


def _taken(kept: Sequence[Piece], pieces: Sequence[tuple[int, int]]) -> tuple[Piece, ...]:
    """What lies in the ranges ``pieces`` (begin, end) of the values in ``kept``, joined where it meets."""
    values = Values(kept)
    return united([piece for begin, end in pieces for piece in values.taken(begin, end)])


def _edit_tensors(state: _State, run: Sequence[Edit]) -> _State:
    header, kept = edit_tensors(state.header, state.kept, run, state.ascii_only)
    return replace(state, header=header, kept=kept)


def _set_metadata(state: _State, edit: SetMetadata) -> _State:
    key, value = _quoted(edit.key, state), _quoted(edit.value, state)
    present = next((member for member in state.header.members if member.key == METADATA), None)
    if present is None:
        text = f"{{{key}{state.header.colon}{value}}}"
        return replace(state, header=state.header.with_first(METADATA, text, f'"{METADATA}"'))
    if present.value == "null":
        changed = replace(present, value=f"{{{key}{state.header.colon}{value}}}")
    else:
        changed = replace(present, value=_with_entry(cut(present.value), edit.key, key, value).text)
    members = [changed if member is present else member for member in state.header.members]
    return replace(state, header=state.header.with_members(members))


def _text_metadata(state: _State, edit: TextMetadata) -> _State:
    """What is no text becomes one. Raises RefusedError where that is not what the edit names."""
    present = next((member for member in state.header.members if member.key == METADATA), None)
    inside = cut(present.value) if present is not None and present.value.startswith("{") else None
    odd = [member for member in inside.members if not member.value.startswith('"')] if inside is not None else []
    found = tuple([(member.key, None if member.value == "null" else member.value) for member in odd])
    if present is None or inside is None or found != edit.entries:
        raise RefusedError("The metadata that is no text is not what was to be made text.")
    kept = [
        replace(member, value=_quoted(member.value, state)) if not member.value.startswith('"') else member
        for member in inside.members
        if member.value != "null"
    ]
    changed = replace(present, value=inside.with_members(kept).text)
    members = [changed if member is present else member for member in state.header.members]
    return replace(state, header=state.header.with_members(members))


def _with_entry(metadata: Cut, wanted: str, key: str, value: str) -> Cut:
    if all(member.key != wanted for member in metadata.members):
        return metadata.with_last(wanted, value, key)
    members = [replace(member, value=value) if member.key == wanted else member for member in metadata.members]
    return metadata.with_members(members)


def _take_root(state: _State, edit: TakeRoot) -> _State:
    if edit.path:
        raise _missing(edit.path)
    return state


def _convert(state: _State, edit: Convert) -> _State:
    if edit.format != NAME:
        raise RefusedError(f"A safetensors file is not converted to “{edit.format}”.")
    return state


def _same(state: _State, edit: Edit) -> _State:
    return state


def _cast(state: _State, edit: Cast) -> _State:
    header, kept = cast_tensors(state.header, state.kept, edit, state.ascii_only)
    return replace(state, header=header, kept=kept)


def _refusal(reason: str) -> Callable[[_State, Edit], _State]:
    def refuse(state: _State, edit: Edit) -> _State:
        raise RefusedError(reason)

    return refuse


_APPLY: dict[type, Callable[[_State, Any], _State]] = {
    Rename: _rename,
    Drop: _drop,
    Cast: _cast,
    SetMetadata: _set_metadata,
    TextMetadata: _text_metadata,
    TakeRoot: _take_root,
    Convert: _convert,
    SetSuffix: _same,
    Truncate: _same,
    RenameModules: _refusal("A safetensors file has no _metadata whose prefixes could be renamed."),
    Renumber: _refusal("A safetensors file holds no optimizer whose parameters have numbers."),
    Reorder: _refusal("A safetensors file sorts its keys, so they have no order of their own."),
    MoveToCpu: _refusal("safetensors files do not say on which device a tensor was."),
    Retag: _refusal("safetensors files carry no device tags, so there are none to change."),
    Compact: _refusal(f"There is nothing to compact: {_BYTES_OF_THEIR_OWN}."),
    MakeContiguous: _refusal(f"There is nothing to make contiguous: {_BYTES_OF_THEIR_OWN}."),
    Densify: _refusal(f"There is nothing to make dense: {_BYTES_OF_THEIR_OWN}."),
    Clone: _refusal(f"There is nothing to clone: {_BYTES_OF_THEIR_OWN}."),
    Replace: _refusal("A safetensors file holds tensors alone, so no value in it can become plain data."),
    Flatten: _refusal("A safetensors file holds tensors alone, so there is no object to make a state dict of."),
}
