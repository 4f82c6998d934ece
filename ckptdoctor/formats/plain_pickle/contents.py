"""From a plain pickle to the nouns of a checkpoint."""

from __future__ import annotations

from ckptdoctor.checkpoint import Aside, Checkpoint, Container, GlobalName, Note, NoteKind, Source
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.formats.plain_pickle.reader import PickleReader, storages_of
from ckptdoctor.formats.plain_pickle.storages import LOADER
from ckptdoctor.formats.plain_pickle.stream import Stream, read_stream
from ckptdoctor.formats.plain_pickle.tree import PickleTree
from ckptdoctor.formats.torch_objects.interpret import changed_elsewhere, read_unseen
from ckptdoctor.formats.torch_objects.sweep import nodes
from ckptdoctor.formats.torch_objects.values import CALLS, full_name
from ckptdoctor.pickles.graph import GlobalUse, Made
from ckptdoctor.wording import plural

_LOADER = ("torch.storage", "_load_from_bytes")


def contents_of(source: Source, container: Container) -> Checkpoint:
    """What the pickle holds. Raises DamagedError when it makes no sense."""
    stream = read_stream(source)
    reader = PickleReader(source, stream, "")
    builder = PickleTree(stream.pickle, reader, "")
    tree = builder.build()
    read_unseen(reader, stream.pickle)
    uses = {(use.module, use.name): use for use in [*stream.pickle.globals, *reader.files.globals]}
    if _all_opened(stream, reader, uses):
        del uses[_LOADER]
    return Checkpoint(
        path=source.path,
        format=container.format,
        size=source.size,
        tree=tree,
        tensors=tuple(builder.tensors),
        storages=storages_of(reader),
        state_dicts=find_state_dicts(tree),
        globals=tuple([GlobalName(use.module, use.name, "", use.offset) for use in uses.values()]),
        notes=(
            *_stream_notes(source, stream),
            *changed_elsewhere(stream.pickle, ""),
            *builder.notes,
            *reader.remarks(),
        ),
        identity=source.identity,
        bytes_read=source.bytes_read,
        container=container,
        asides=_asides(source, stream),
    )


def _asides(source: Source, stream: Stream) -> tuple[Aside, ...]:
    """What other pickles name: in texts of this one, and behind its end."""
    if not stream.texts and stream.pickle.end == source.size:
        return ()
    from ckptdoctor.formats.asides import behind, of_texts

    return (*of_texts(stream.texts), *behind(source, stream.pickle.end))


def _all_opened(stream: Stream, reader: PickleReader, uses: dict[tuple[str, str], GlobalUse]) -> bool:
    """Whether every call of ``_load_from_bytes`` has been read: what loads from bytes hides nothing then."""
    if _LOADER not in uses:
        return False
    calls = [node for node in nodes(stream.pickle.root) if type(node) is Made and node.op in CALLS]
    return all(reader.files.get(node) for node in calls if full_name(node.items[0]) == LOADER)


def _stream_notes(source: Source, stream: Stream) -> list[Note]:
    notes = [Note(NoteKind.PICKLE_AMBIGUOUS, each.message, offset=each.offset) for each in stream.pickle.ambiguities]
    end = stream.pickle.end
    if end < source.size:
        message = (
            f"{plural(source.size - end, 'byte follows', 'bytes follow')} the end of the pickle at byte "
            f"{end:,}; pickle.load never looks there"
        )
        notes.append(Note(NoteKind.TRAILING_BYTES, message, offset=end))
    return notes
