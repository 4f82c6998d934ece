"""A folder of torch.distributed.checkpoint: ``.metadata`` says which bytes of which ``.distcp`` file are what.

Each value was saved by ``torch.save`` into a stretch of a file; a sharded tensor is several of them (its chunks).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import (
    Aside,
    Checkpoint,
    Container,
    FolderSource,
    GlobalName,
    KeyPath,
    Lying,
    Mapping,
    Node,
    Note,
    NoteKind,
    Part,
    Sequence,
    Source,
)
from ckptdoctor.errors import DamagedError, HostileError
from ckptdoctor.formats.folders.dcp_metadata import Entry, Metadata, read_metadata
from ckptdoctor.formats.folders.dcp_pieces import Pieces
from ckptdoctor.formats.folders.gathering import Gathering, folder_of, known, size_of, unread
from ckptdoctor.formats.other_pickles import behind, of_texts
from ckptdoctor.formats.suffixes import DISTRIBUTED
from ckptdoctor.formats.unrepairable import refusal
from ckptdoctor.pickles.nested import texts_of

if TYPE_CHECKING:  # writing is not needed to read
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

NAME = DISTRIBUTED

_METADATA = ".metadata"
_LONGEST = 1 << 30


def examine(source: Source, head: bytes) -> Container | None:
    """The folder by ``.metadata`` and what lies beside it; without ``.metadata`` nothing in it can be found."""
    folder = folder_of(source)
    files = [name for name in folder.names if name.endswith(".distcp")]
    if not files and _METADATA not in folder.names:
        return None
    container = known(folder, NAME, size_of(folder, [*files, _METADATA]))
    if _METADATA in folder.names:
        return container
    message = ".metadata is missing, which says what the .distcp files hold"
    guidance = (
        "Copy .metadata from where it was saved (its name begins with a dot, so that “cp FOLDER/*” leaves it out); "
        "a save that was interrupted never wrote it."
    )
    return unread(container, guidance, [Note(NoteKind.FILE_MISSING, message, _METADATA)])


def read(source: Source, container: Container) -> Checkpoint:
    """The nested contents, from ``.metadata`` and the headers of what it points to. Raises DamagedError."""
    folder = folder_of(source)
    gathering = Gathering(folder)
    metadata = _metadata(folder, gathering)
    for name in metadata.odd[:8]:
        gathering.note(NoteKind.NOT_EXAMINED, f"{name[:80]} is described in no way that is known", _METADATA)
    pieces = Pieces(gathering, metadata)
    values = [(metadata.paths.get(entry.key) or (entry.key,), entry) for entry in metadata.entries]
    tree = nested(values, pieces.value, gathering)
    gathering.globals += pieces.globals
    return gathering.checkpoint(container, tree)


def _metadata(folder: FolderSource, gathering: Gathering) -> Metadata:
    """What ``.metadata`` says; ``gathering`` takes in what it names, which ``pickle.load`` calls."""
    source = folder.open(_METADATA)
    if source.size > _LONGEST:
        raise HostileError(f".metadata is {source.size:,} bytes long; at most {_LONGEST:,} are read.", member=_METADATA)
    data = source.read(0, source.size)
    try:
        metadata = read_metadata(data)
    except DamagedError as error:
        raise type(error)(f".metadata: {error.message}", offset=error.offset, member=_METADATA) from error
    pickle = metadata.pickle
    gathering.read.add(_METADATA)
    names = tuple([GlobalName(use.module, use.name, _METADATA, use.offset) for use in pickle.globals])
    gathering.asides.append(Aside(Lying.INDEX, names, _METADATA, 0))
    gathering.asides += of_texts(texts_of(data, pickle), _METADATA)
    gathering.asides += behind(source, pickle.end, _METADATA)
    for each in pickle.ambiguities:
        gathering.note(NoteKind.PICKLE_AMBIGUOUS, each.message, _METADATA, each.offset)
    if pickle.discards_calls:
        message = "the pickle calls something and throws the result away"
        gathering.note(NoteKind.PICKLE_HIDDEN_CALL, message, _METADATA)
    return metadata


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """How to write a new folder, of one ``.distcp`` file; none is edited in place. Raises RefusedError."""
    if source is None:
        from ckptdoctor.formats.fresh import dcp

        return dcp.write(wanted)
    raise refusal(wanted.original)


# ---- nested contents out of flat keys: the place of each in dicts and lists, as ``unflatten_state_dict`` of torch says


# what lies at the end of a path may be deep again: see formats.torch.read.tree
_DEEPEST = 64


def nested(
    values: Iterable[tuple[tuple[str | int, ...], Entry]],
    made: Callable[[Entry, KeyPath], Node],
    gathering: Gathering,
) -> Node:
    """The tree of all values; ``made`` turns each into its node, in the order in which they were given."""
    top: dict[Part, object] = {}
    for path, entry in values:
        if len(path) > _DEEPEST or not _put(top, path, entry):
            gathering.note(NoteKind.NOT_EXAMINED, f"{entry.key[:80]} has a place that another value has", ".metadata")
    return _node(top, (), made)


def _put(top: dict[Part, object], path: tuple[str | int, ...], entry: Entry) -> bool:
    level = top
    for step in path[:-1]:
        below = level.setdefault(step, {})
        if not isinstance(below, dict):
            return False
        level = below
    if path[-1] in level:
        return False
    level[path[-1]] = entry
    return True


def _node(level: dict[Part, object], path: KeyPath, made: Callable[[Entry, KeyPath], Node]) -> Node:
    found: list[tuple[Part, Node]] = []
    for part, value in level.items():
        below = (*path, part)
        if isinstance(value, Entry):
            found.append((part, made(value, below)))
        elif isinstance(value, dict):
            found.append((part, _node(value, below, made)))
    numbers = [part for part, _ in found if type(part) is int]
    # what was left out of a list when it was saved is None in it, as in torch; too many are no list
    if path and found and len(numbers) == len(found) and max(numbers) < 4 * len(found) + 64:
        items: list[Node] = [None] * (max(numbers) + 1)
        for part, node in found:
            if type(part) is int:
                items[part] = node
        return Sequence("list", tuple(items))
    return Mapping("dict", tuple(found))
