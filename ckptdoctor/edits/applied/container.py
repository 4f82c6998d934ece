"""Edits what is around the contents: metadata, the length and name of the file, its format, an index."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.edits import Convert, Edit, SetMetadata, SetSuffix, TextMetadata, Truncate, WriteIndex
from ckptdoctor.edits.applied.act import Act
from ckptdoctor.edits.fix import Change
from ckptdoctor.facts.reader_notes import metadata_notes
from ckptdoctor.noun import replace


def _set_metadata(checkpoint: Checkpoint, edit: SetMetadata) -> Checkpoint:
    return replace(checkpoint, metadata={**(checkpoint.metadata or {}), edit.key: edit.value})


def _text_metadata(checkpoint: Checkpoint, edit: TextMetadata) -> Checkpoint:
    texts = {key: text for key, text in edit.entries if text is not None}
    gone = set(metadata_notes(checkpoint.notes))
    container = checkpoint.container
    if container is not None:
        container = replace(container, notes=tuple([note for note in container.notes if note not in gone]))
    notes = tuple([note for note in checkpoint.notes if note not in gone])
    return replace(checkpoint, metadata={**(checkpoint.metadata or {}), **texts}, notes=notes, container=container)


def _truncate(checkpoint: Checkpoint, edit: Truncate) -> Checkpoint:
    return replace(checkpoint, size=edit.length)


def _convert(checkpoint: Checkpoint, edit: Convert) -> Checkpoint:
    return replace(checkpoint, format=edit.format)


def _write_index(checkpoint: Checkpoint, edit: WriteIndex) -> Checkpoint:
    return replace(checkpoint, notes=tuple([note for note in checkpoint.notes if note.member != edit.name]))


def _same(checkpoint: Checkpoint, edit: Edit) -> Checkpoint:
    return checkpoint


def _metadata_told(checkpoint: Checkpoint, edit: SetMetadata, after: Checkpoint) -> Iterator[Change]:
    old = (checkpoint.metadata or {}).get(edit.key)
    yield Change("set-metadata", ((f"{edit.key}: {old or 'not set'}", f"{edit.key}: {edit.value}"),), ())


def _texts_told(checkpoint: Checkpoint, edit: TextMetadata, after: Checkpoint) -> Iterator[Change]:
    yield Change("text-metadata", (), ((len(edit.entries), "entry"),))


def _length_told(checkpoint: Checkpoint, edit: Truncate, after: Checkpoint) -> Iterator[Change]:
    yield Change("truncate", (), ((checkpoint.size - edit.length, "byte"),))


def _suffix_told(checkpoint: Checkpoint, edit: SetSuffix, after: Checkpoint) -> Iterator[Change]:
    yield Change("set-suffix", (("", edit.suffix),), ())


def _format_told(checkpoint: Checkpoint, edit: Convert, after: Checkpoint) -> Iterator[Change]:
    yield Change("convert", ((checkpoint.format, edit.format),), ())


def _index_told(checkpoint: Checkpoint, edit: WriteIndex, after: Checkpoint) -> Iterator[Change]:
    yield Change("write-index", (("", edit.name),), ((len(checkpoint.tensors), "tensor"),))


SET_METADATA = Act(_set_metadata, _metadata_told)
TEXT_METADATA = Act(_text_metadata, _texts_told)
TRUNCATE = Act(_truncate, _length_told)
SET_SUFFIX = Act(_same, _suffix_told)
CONVERT = Act(_convert, _format_told)
WRITE_INDEX = Act(_write_index, _index_told)
