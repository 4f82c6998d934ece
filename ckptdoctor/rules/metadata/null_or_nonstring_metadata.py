"""The metadata of the safetensors file holds a value that is not text.

Meaning
    ``__metadata__`` must be an object of texts. A writer put a number, a list, ``null`` or an object under one of its
    names, usually a step or a configuration that should have been converted to text.

Why it matters
    safetensors rejects the whole file, although all tensors are intact, and gives a column of the JSON as the reason.

Symptoms
    Error while deserializing header: invalid JSON in header: invalid type: integer `10`, expected a string
    Error while deserializing header: InvalidHeaderDeserialization

Detection
    The header is read as strictly as safetensors itself reads it, and the entry at fault is named. A ``__metadata__``
    that is itself ``null`` is read since 0.8, and M971 reports what is missing then.

Repair
    ``ckptdoctor fix FILE --select M972`` writes the JSON of each such value as text, ``10`` as ``"10"``, and leaves out
    entries that are ``null``. Safe: the tensors are copied byte for byte. Only metadata at the beginning of the header,
    where nearly every writer puts it, is repaired.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import Checkpoint, Container, NoteKind
from ckptdoctor.edits import Fix, Safety, TextMetadata
from ckptdoctor.facts.reader_notes import ENTRY, metadata_notes
from ckptdoctor.findings import Severity
from ckptdoctor.regex import regex
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.noticed import problems
from ckptdoctor.rules.kit.refusals import HEADER
from ckptdoctor.rules.messages import CHECK, SAFE, Message
from ckptdoctor.rules.when import noticed

if TYPE_CHECKING:
    from json import JSONDecoder

_MODEL = {"w": T((3,))}


def _example(title: str, value: bytes) -> Example:
    """Return a file with this in the place of the text "10000"."""
    return Example(
        title,
        _MODEL,
        "safetensors",
        ".safetensors",
        metadata={"format": "pt", "step": "10000"},
        damage=lambda data: data.replace(b'"10000"', value.ljust(7)),
    )


MESSAGES = (
    Message(
        ("InvalidHeaderDeserialization", "invalid JSON in header"),
        "a value in the metadata of the safetensors file is not text, and only text is allowed there",
        (CHECK, SAFE),
        then=r".{0,200}?invalidtype:(?:null|integer|map|boolean|sequence|floatingpoint).{0,80}?expectedastring",
        also=("C110",),
        general=1,
    ),
    Message(
        ("invalid type: null, expected a string", "invalid type: integer", "invalid type: map, expected a string"),
        "a value in the metadata of the safetensors file is not text, and only text is allowed there",
        (CHECK, SAFE),
        also=("C110",),
    ),
)
SICK = (_example("a number", b"10000"), _example("a null", b"null"), _example("a list", b"[10000]"))
HEALTHY = (_example("a text", b'"1000" '),)


@rule("M972", "null-or-nonstring-metadata", Severity.ERROR, when=noticed)
def null_or_nonstring_metadata(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report metadata that is not text."""
    notes = metadata_notes(checkpoint.notes)
    yield from problems(
        notes,
        otherwise="the metadata holds a value that is not text",
        cause="The metadata was written by a program that does not follow the format. The tensors may be intact.",
        torch_says=(f"{HEADER}invalid JSON in header",),
        advice="Convert the entry to text with str(value) or json.dumps(value), and write the file again.",
        fix=_fix(checkpoint) if notes else None,
    )


def _fix(checkpoint: Checkpoint) -> Fix | None:
    """Return the fix, or None where more is wrong with the header, or they are not among its first bytes."""
    entries = _odd_metadata(checkpoint.container)
    notes = [note for note in checkpoint.notes if note.kind is NoteKind.HEADER_INVALID]
    sound = len(notes) == len(entries) and all(note.message.startswith(ENTRY) for note in notes)
    if not sound or any(note.kind is NoteKind.DUPLICATE_KEY for note in checkpoint.notes):
        return None
    title = f"convert {wording.plural(len(entries), 'metadata entry', 'metadata entries')} to text"
    return Fix(title, (TextMetadata(entries),), Safety.SAFE, "--select M972")


# What stands for text in the metadata of a safetensors header, read from the first bytes of the file

_METADATA = "__metadata__"
_LENGTH = 8  # bytes that count those of the header
_BLANK = regex(r"[ \t\r\n]*")


@cache
def _decoder() -> JSONDecoder:
    from json import JSONDecoder

    return JSONDecoder()


def _odd_metadata(container: Container | None) -> tuple[tuple[str, str | None], ...]:
    """Return each entry of the metadata that is not text: its name and its value as JSON, None for null.

    Nothing where the metadata is not in the first bytes of the file, where nearly every writer puts it.
    """
    if container is None or container.format != "safetensors":
        return ()
    length = int.from_bytes(container.head[:_LENGTH], "little")
    text = container.head[_LENGTH : _LENGTH + length].decode("utf-8", "ignore")
    try:
        found = next((value for name, value in _members(text) if name == _METADATA), "")
        entries = list(_members(found))
    except (RecursionError, ValueError):  # it goes on behind these bytes
        return ()
    return tuple([(name, None if value == "null" else value) for name, value in entries if not value.startswith('"')])


def _members(text: str) -> Iterator[tuple[str, str]]:
    """Yield each name of a JSON object with its value as written; nothing where the text is not an object."""
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        return
    at = _skip(text, at + 1)
    while text[at : at + 1] == '"':
        name, end = _decoder().raw_decode(text, at)
        begin = _skip(text, _skip(text, end) + 1)
        _, end = _decoder().raw_decode(text, begin)
        yield name, text[begin:end]
        at = _skip(text, _skip(text, end) + 1)


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at
