"""Writes an edited copy: a patched header, and the values as they are, copied by range.

Only the text of what an edit touches changes in the header; everything else stays as its writer wrote it, and the
whole is padded with blanks so that the values begin at a multiple of eight bytes, as safetensors itself does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from json import dumps, loads

from ckptdoctor.checkpoint import NoteKind, Source
from ckptdoctor.edits import (
    Clone,
    Compact,
    Convert,
    Densify,
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
    TextMetadata,
    Truncate,
)
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.errors import RefusedError, UnprovenError
from ckptdoctor.formats.safetensors.header import METADATA, Header, header_bytes, quoted
from ckptdoctor.formats.safetensors.reader import header_of
from ckptdoctor.formats.safetensors.signature import LENGTH_BYTES, MAX_HEADER_BYTES, NAME
from ckptdoctor.formats.safetensors.spans import Cut, cut
from ckptdoctor.formats.safetensors.tensors import segments, with_tensors
from ckptdoctor.noun import noun, replace
from ckptdoctor.wording import plural
from ckptdoctor.writing.recipe import Literal, Recipe

_ALIGNMENT = 8

# what keeps a header from being edited: readers disagree about it, or refuse it
_BROKEN = (NoteKind.HEADER_INVALID, NoteKind.OFFSETS_INVALID, NoteKind.DUPLICATE_KEY, NoteKind.TRUNCATED)

# how the one fault begins that an edit heals (formats.safetensors.header)
_ODD_METADATA = f"the {METADATA} entry "

_BYTES_OF_THEIR_OWN = "each tensor of a safetensors file has its own bytes, in C order and without gaps"


def write_copy(wanted: Wanted, source: Source) -> Recipe:
    """Return how to write the file so that it holds what is wanted.

    Raises UnprovenError when the header is one that readers disagree about, RefusedError for what a safetensors file
    cannot hold, and DamagedError when the header cannot be read.
    """
    edits = wanted.edits
    reason = next((_REFUSED[type(edit)] for edit in edits if type(edit) in _REFUSED), None)
    if reason is not None:
        raise RefusedError(reason)
    other = next((each.format for each in edits if isinstance(each, Convert) and each.format != NAME), None)
    if other is not None:
        raise RefusedError(f'A safetensors file cannot be converted to "{other}".')
    header = header_of(source)
    _require_a_sound_header(source, header, edits)
    text = header_bytes(source).decode("utf-8")
    style = _Style(_is_ascii_style(text))
    made, pieces = with_tensors(_proven(text, header), header, wanted, style.quoted)
    for edit in edits:
        if isinstance(edit, SetMetadata):
            made = _with_metadata(made, edit, style)
        elif isinstance(edit, TextMetadata):
            made = _with_text_metadata(made, edit, style)
    if any(isinstance(edit, Rename) for edit in edits):
        made = _with_renamed_ties(made, wanted.contents.metadata or {}, style)
    head = _padded(made.text)
    if len(head) > MAX_HEADER_BYTES:
        raise RefusedError(f"The header would have {len(head):,} bytes; safetensors allows {MAX_HEADER_BYTES:,}.")
    first = Literal(len(head).to_bytes(LENGTH_BYTES, "little") + head)
    storages = {each.key: each.extent.offset for each in wanted.original.storages if each.extent is not None}
    return Recipe(source.file, (first, *segments(source.file, pieces, storages)))


def _require_a_sound_header(source: Source, header: Header, edits: Sequence[Edit]) -> None:
    healed = any(isinstance(edit, TextMetadata) for edit in edits)
    for note in header.notes:
        if note.kind in _BROKEN and not (healed and note.message.startswith(_ODD_METADATA)):
            raise UnprovenError(f"The file is not edited, because its header is in doubt: {note.message}.")
    lengths = [edit.length for edit in edits if isinstance(edit, Truncate)]
    if any(length != header.end for length in lengths):
        raise RefusedError(f"The last tensor ends at byte {header.end:,}: the file can be cut only there.")
    if source.size > header.end and not lengths:
        extra = source.size - header.end
        raise RefusedError(
            f"{plural(extra, 'byte follows', 'bytes follow')} the last tensor, which a copy would lose. Add --select "
            "F008 --unsafe-fixes to cut them off."
        )


def _proven(text: str, header: Header) -> Cut:
    """Return the header in pieces, once it is proven that they give the entries and the text that were read."""
    pieces = cut(text)
    names = [member.key for member in pieces.members if member.key != METADATA]
    if names != list(header.entries):
        raise UnprovenError("The entries of the header are not the ones that were read, so it is not edited.")
    return pieces


def _is_ascii_style(text: str) -> bool:
    """Return whether the writer escapes everything that is not ASCII, as Python's json does."""
    return text.isascii() and re.search(r"\\u00[89a-f]|\\u[1-9a-fA-F]|\\u0[1-9a-fA-F]", text) is not None


def _padded(text: str) -> bytes:
    """Return the header's bytes, with blanks up to a multiple of eight (as Rust's ``prepare`` writes them)."""
    data = text.rstrip(" \t\r\n").encode("utf-8")
    return data + b" " * (-len(data) % _ALIGNMENT)


@noun
class _Style:
    """How the writer of the file writes text."""

    ascii_only: bool

    def quoted(self, text: str) -> str:
        """Return a name or value as JSON."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise RefusedError(f"{quoted(text)} cannot be encoded as UTF-8, so safetensors cannot hold it.") from error
        return dumps(text, ensure_ascii=self.ascii_only)


def _with_metadata(header: Cut, edit: SetMetadata, style: _Style) -> Cut:
    key, value = style.quoted(edit.key), style.quoted(edit.value)
    present = next((member for member in header.members if member.key == METADATA), None)
    if present is None:
        return header.with_first(METADATA, f"{{{key}{header.colon}{value}}}", f'"{METADATA}"')
    if present.value == "null":
        changed = replace(present, value=f"{{{key}{header.colon}{value}}}")
    else:
        changed = replace(present, value=_with_entry(cut(present.value), edit.key, key, value).text)
    members = [changed if member is present else member for member in header.members]
    return header.with_members(members)


def _with_text_metadata(header: Cut, edit: TextMetadata, style: _Style) -> Cut:
    """Turn metadata that is not text into text. Raises RefusedError where that is not what the edit names."""
    present = next((member for member in header.members if member.key == METADATA), None)
    inside = cut(present.value) if present is not None and present.value.startswith("{") else None
    odd = [member for member in inside.members if not member.value.startswith('"')] if inside is not None else []
    found = tuple([(member.key, None if member.value == "null" else member.value) for member in odd])
    if present is None or inside is None or found != edit.entries:
        raise RefusedError("The metadata that is not text has changed since it was read.")
    kept = [
        replace(member, value=style.quoted(member.value)) if not member.value.startswith('"') else member
        for member in inside.members
        if member.value != "null"
    ]
    changed = replace(present, value=inside.with_members(kept).text)
    members = [changed if member is present else member for member in header.members]
    return header.with_members(members)


def _with_renamed_ties(header: Cut, wanted: Mapping[str, str], style: _Style) -> Cut:
    """Put the new names into the notes on tied tensors, each in the place of the old one."""
    present = next((member for member in header.members if member.key == METADATA), None)
    if present is None or not present.value.startswith("{"):
        return header
    inside = cut(present.value)
    said = [(member.key, loads(member.value)) for member in inside.members]
    # renaming keeps the order, so what is there no longer and what is new go together one by one
    known = set(said)
    new = iter([entry for entry in wanted.items() if entry not in known])
    members = []
    for member, (key, text) in zip(inside.members, said, strict=True):
        other = next(new, None) if wanted.get(key) != text else None
        if other is not None:
            member = replace(member, key=other[0], name=style.quoted(other[0]), value=style.quoted(other[1]))
        members.append(member)
    changed = replace(present, value=inside.with_members(members).text)
    return header.with_members([changed if member is present else member for member in header.members])


def _with_entry(metadata: Cut, wanted: str, key: str, value: str) -> Cut:
    if all(member.key != wanted for member in metadata.members):
        return metadata.with_last(wanted, value, key)
    members = [replace(member, value=value) if member.key == wanted else member for member in metadata.members]
    return metadata.with_members(members)


# edits of what a safetensors file has not
_REFUSED: dict[type[Edit], str] = {
    RenameModules: "A safetensors file has no _metadata whose prefixes could be renamed.",
    Renumber: "A safetensors file does not hold an optimizer with numbered parameters.",
    Reorder: "A safetensors file sorts its keys, so they have no order of their own.",
    MoveToCpu: "safetensors files do not record the device of a tensor.",
    Retag: "safetensors files carry no device tags, so there are none to change.",
    Compact: f"There is nothing to compact: {_BYTES_OF_THEIR_OWN}.",
    MakeContiguous: f"There is nothing to make contiguous: {_BYTES_OF_THEIR_OWN}.",
    Densify: f"There is nothing to make dense: {_BYTES_OF_THEIR_OWN}.",
    Clone: f"There is nothing to clone: {_BYTES_OF_THEIR_OWN}.",
    Replace: "A safetensors file holds only tensors, so no value in it can become plain data.",
    Flatten: "A safetensors file holds only tensors, so there is no object to make a state dict from.",
}
