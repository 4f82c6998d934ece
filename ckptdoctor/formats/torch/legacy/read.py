"""Recognises and reads legacy files: their pickles and the counts of their storages, no values."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from ckptdoctor.checkpoint import Aside, Checkpoint, Container, GlobalName, Lying, Note, NoteKind, Source
from ckptdoctor.errors import DamagedError, TruncatedError
from ckptdoctor.formats.torch.legacy.storages import LegacyStorages
from ckptdoctor.formats.torch.legacy.stream import NAMES, Stream, is_legacy, read_stream
from ckptdoctor.formats.torch.read import interpret
from ckptdoctor.pickles.inner import texts_of

NAME = "torch legacy"

_CUT = "Fetch the file again, or take an earlier checkpoint: it ends before it says what it holds."

# each source's pickles between examine and read
_streams: WeakKeyDictionary[Source, Stream] = WeakKeyDictionary()
# those of sources whose storages are not looked at
_believed: WeakKeyDictionary[Source, Stream] = WeakKeyDictionary()


def believe(source: Source, stream: Stream) -> None:
    """Read no counts of storages from here on: the pickles say them, and the caller says whether that was checked."""
    _believed[source] = stream


def examine(source: Source, head: bytes) -> Container | None:
    """What the outside of the file says, or None when it does not begin with the magic number of legacy files.

    A file that ends within its pickles is a container that cannot be read.
    """
    if not is_legacy(head):
        return None
    readable, guidance = True, ""
    notes: tuple[Note, ...] = ()
    try:
        _streams[source] = _believed.get(source) or read_stream(source)
    except TruncatedError as error:
        readable, guidance = False, _CUT
        notes = (Note(NoteKind.TRUNCATED, error.message.rstrip("."), offset=error.offset),)
    except DamagedError:
        pass  # read says it again, with the place
    return Container(source.path, source.size, NAME, head, readable, guidance, notes, source.identity)


def read(source: Source, container: Container) -> Checkpoint:
    """The contents, from the pickles and the counts of the storages; no tensor value is read.

    Raises DamagedError or one of its kinds, with the byte, when the pickles cannot be read.
    """
    believed = _believed.get(source)
    stream = believed or _streams.pop(source, None) or read_stream(source)
    table = LegacyStorages(source, stream, believed is not None)
    contents = interpret(stream.saved, table, "")
    asides = _asides(source, stream, table)
    return Checkpoint(
        path=source.path,
        format=NAME,
        size=source.size,
        tree=contents.tree,
        tensors=contents.tensors,
        storages=contents.storages,
        state_dicts=contents.state_dicts,
        globals=contents.globals,
        notes=(*stream_notes(stream), *contents.notes, *table.notes),
        identity=source.identity,
        bytes_read=source.bytes_read,
        container=container,
        asides=asides,
    )


def _asides(source: Source, stream: Stream, table: LegacyStorages) -> tuple[Aside, ...]:
    """What other pickles name: in texts of these, in those that are plain data, and behind the storages."""
    texts = [text for pickle in stream.pickles for text in texts_of(stream.data, pickle)]
    named = [pickle for pickle in stream.pickles if pickle is not stream.saved and pickle.globals]
    after = any(note.kind is NoteKind.TRAILING_BYTES for note in table.notes)
    if not texts and not named and not after:
        return ()
    from ckptdoctor.formats.asides import behind, of_texts

    uses = [GlobalName(use.module, use.name, "", use.offset) for pickle in named for use in pickle.globals]
    own = (Aside(Lying.BESIDE, tuple(uses), "", uses[0].offset),) if uses else ()
    return (*own, *of_texts(texts), *(behind(source, table.end) if after else ()))


def stream_notes(stream: Stream) -> list[Note]:
    """What unpicklers may read differently in each of the pickles, and calls in those that are plain data."""
    notes = []
    for name, pickle in zip(NAMES, stream.pickles, strict=True):
        for each in pickle.ambiguities:
            notes.append(Note(NoteKind.PICKLE_AMBIGUOUS, f"{each.message} ({name})", offset=each.offset))
        if pickle is not stream.saved and pickle.globals:
            use = pickle.globals[0]
            message = f"the pickle of the {name} names {use.module}.{use.name}, where torch writes plain data"
            notes.append(Note(NoteKind.PICKLE_HIDDEN_CALL, message, offset=use.offset))
    return notes
