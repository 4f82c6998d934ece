"""torch.distributed.checkpoint writes a folder: ``.metadata`` says which bytes of which ``.distcp`` file are what.

Each value was saved by ``torch.save`` into a stretch of a file; a sharded tensor is several of them (its chunks).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import (
    Aside,
    Checkpoint,
    Container,
    Elided,
    Extent,
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
    Storage,
    Tensor,
)
from ckptdoctor.checkpoint.checkpoint import UNREAD
from ckptdoctor.checkpoint.tensor import contiguous_stride, is_contiguous
from ckptdoctor.errors import CkptDoctorError, DamagedError, HostileError, UnreadableError
from ckptdoctor.formats.folders.coverage import uncovered
from ckptdoctor.formats.folders.dcp_metadata import Entry, Item, Metadata, Sizes, read_metadata
from ckptdoctor.formats.folders.gathering import Gathering, Rebased, folder_of, known, size_of, unread
from ckptdoctor.formats.other_pickles import behind, of_texts
from ckptdoctor.formats.suffixes import DISTRIBUTED
from ckptdoctor.formats.torch.read import interpret
from ckptdoctor.formats.torch.read.storages import MAX_COUNT
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.directory import read_directory
from ckptdoctor.formats.torch.zip.read import ZipStorages, decode_member, pickle_bytes, pickle_record, read_word
from ckptdoctor.formats.torch.zip.records import Record
from ckptdoctor.formats.unrepairable import refusal
from ckptdoctor.formats.window import Window
from ckptdoctor.noun import replace
from ckptdoctor.pickles.lookups import named_globals
from ckptdoctor.pickles.nested import texts_of
from ckptdoctor.wording import plural

if TYPE_CHECKING:  # writing is not needed to read
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.writing.recipe import Recipe

NAME = DISTRIBUTED

_METADATA = ".metadata"
_LONGEST = 1 << 30


def examine(source: Source, head: bytes) -> Container | None:
    """Return the folder by ``.metadata`` and what is next to it; without ``.metadata`` nothing in it can be found."""
    folder = folder_of(source)
    files = [name for name in folder.names if name.endswith(".distcp")]
    if not files and _METADATA not in folder.names:
        return None
    container = known(folder, NAME, size_of(folder, [*files, _METADATA]))
    if _METADATA in folder.names:
        return container
    message = ".metadata is missing, which lists what the .distcp files hold"
    guidance = (
        "Copy .metadata from where it was saved. Its name begins with a dot, so cp FOLDER/* skips it; an "
        "interrupted save never wrote it."
    )
    return unread(container, guidance, [Note(NoteKind.FILE_MISSING, message, _METADATA)])


def read(source: Source, container: Container) -> Checkpoint:
    """Return the nested contents, from ``.metadata`` and the headers of what it points to. Raises DamagedError."""
    folder = folder_of(source)
    gathering = Gathering(folder)
    metadata = _metadata(folder, gathering)
    for name in metadata.odd[:8]:
        gathering.note(NoteKind.NOT_EXAMINED, f"{name[:80]} has an unknown description", _METADATA)
    pieces = _Pieces(gathering, metadata)
    values = [(metadata.paths.get(entry.key) or (entry.key,), entry) for entry in metadata.entries]
    tree = nested(values, pieces.value, gathering)
    pieces.name_lost()
    gathering.globals += pieces.globals
    return gathering.checkpoint(container, tree)


def _metadata(folder: FolderSource, gathering: Gathering) -> Metadata:
    """Return what ``.metadata`` says; ``gathering`` takes in what it names, which ``pickle.load`` calls."""
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
    gathering.asides.append(Aside(Lying.INDEX, named_globals(pickle.globals, _METADATA), _METADATA, 0))
    gathering.asides += of_texts(texts_of(data, pickle), _METADATA)
    gathering.asides += behind(source, pickle.end, _METADATA)
    for each in pickle.ambiguities:
        gathering.note(NoteKind.PICKLE_AMBIGUOUS, each.message, _METADATA, each.offset)
    if pickle.discards_calls:
        message = "the pickle makes a call and discards the result"
        gathering.note(NoteKind.PICKLE_HIDDEN_CALL, message, _METADATA)
    return metadata


def write(wanted: Wanted, source: Source | None) -> Recipe:
    """Return how to write a new folder, of one ``.distcp`` file; none is edited in place. Raises RefusedError."""
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
    """Return the tree of all values; ``made`` turns each into its node, in the order in which they were given."""
    top: dict[Part, object] = {}
    for path, entry in values:
        if len(path) > _DEEPEST or not _put(top, path, entry):
            gathering.note(NoteKind.NOT_EXAMINED, f"{entry.key[:80]} has the same place as another value", ".metadata")
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


# ---- the values: each read from its stretch of a file, and tensors from all their chunks


# values lie one behind the other in a file: together they are no longer than it
_MOST_USES = 4


class _Pieces:
    """Reads what ``.metadata`` points to, through the readers of single files."""

    def __init__(self, gathering: Gathering, metadata: Metadata) -> None:
        self._gathering = gathering
        self._places = metadata.places
        self._templates = _Templates()
        self._lost: dict[str, dict[KeyPath, None]] = {}  # files that were told to be missing, and what was in them
        self._used: dict[str, int] = {}  # bytes of each file that were looked at

    @property
    def globals(self) -> list[GlobalName]:
        """What the pickles of tensors name."""
        return self._templates.globals

    def value(self, entry: Entry, path: KeyPath) -> Node:
        """Return the tensor or other value that one flat key stands for."""
        if not entry.is_tensor:
            return self._other(entry, path)
        tensor = self._tensor(entry, path)
        self._gathering.tensors.append(tensor)
        return tensor

    def _other(self, entry: Entry, path: KeyPath) -> Node:
        item = self._places.get((entry.key, None))
        if item is None:
            self._gathering.note(NoteKind.STORAGE_MISSING, f"{_short(entry.key)} was saved nowhere", ".metadata")
            return Elided("it was saved nowhere")
        window = self._window(item, path)
        checkpoint = self._gathering.source(window, item.file) if window is not None else None
        if checkpoint is None:
            return Elided("it cannot be read")
        return self._gathering.add(checkpoint, _label(item), path, item.offset)

    def _tensor(self, entry: Entry, path: KeyPath) -> Tensor:
        size, dtype = entry.size or (), entry.dtype
        assert dtype is not None
        whole = Tensor(path, dtype, size, contiguous_stride(size), None, rebuild="torch.distributed.checkpoint")
        if prod(size) > MAX_COUNT:
            message = f"{_short(entry.key)} has more elements than torch can count"
            self._gathering.notes.append(Note(NoteKind.TENSOR_ODD, message, keys=(path,)))
            return whole
        chunks = tuple([(start, self._chunk(entry, start, sizes, path)) for start, sizes in entry.chunks])
        left = uncovered(size, entry.chunks)
        if left:
            message = f"{_short(entry.key)}: {left}"
            self._gathering.note(NoteKind.TENSOR_ODD, message, ".metadata")
        elif len(chunks) == 1 and is_contiguous(chunks[0][1]):
            return chunks[0][1]
        return replace(whole, chunks=chunks)

    def _chunk(self, entry: Entry, start: Sizes, sizes: Sizes, path: KeyPath) -> Tensor:
        item = self._places.get((entry.key, start))
        found = self._read(entry, item, sizes, path) if item is not None else None
        if found is not None:
            return found
        assert entry.dtype is not None
        nbytes = (prod(sizes) * entry.dtype.bits + 7) // 8
        key = f"{entry.key}{list(start)}"
        lost = Storage(key, nbytes, entry.dtype, "cpu", None)
        self._gathering.storages.append(lost)
        if item is None or item.file not in self._lost:
            message = f"{_short(entry.key)} has no values from {list(start)} on: they were not found in the folder"
            self._gathering.note(NoteKind.STORAGE_MISSING, message, ".metadata" if item is None else item.file)
        return Tensor(path, entry.dtype, sizes, contiguous_stride(sizes), lost, rebuild="torch.distributed.checkpoint")

    def _read(self, entry: Entry, item: Item, sizes: Sizes, path: KeyPath) -> Tensor | None:
        """Return the tensor that was saved there; None, and a note, where it is not a tensor like the one described."""
        window = self._window(item, path)
        if window is None:
            return None
        usual = self._templates.read(window, item.offset, _label(item), path)
        if usual is not None and usual.storage is not None and (usual.shape, usual.dtype) == (sizes, entry.dtype):
            self._gathering.storages.append(usual.storage)
            return usual
        checkpoint = self._gathering.source(window, item.file)
        if checkpoint is None:
            return None
        rebased = Rebased(_label(item), item.offset)
        node = rebased.node(checkpoint.tree, path)
        if not isinstance(node, Tensor) or node.shape != sizes or node.dtype != entry.dtype:
            message = f"{_short(entry.key)}: the contents at byte {item.offset:,} of {item.file} are wrong"
            self._gathering.note(NoteKind.TENSOR_ODD, message, item.file, item.offset)
            return None
        rebased.tensors.clear()  # the whole tensor counts, not its chunks
        self._gathering.take(rebased, checkpoint)
        return node

    def name_lost(self) -> None:
        """Say of each file that is missing, or not complete, which values were in it."""
        for at, note in enumerate(self._gathering.notes):
            lost = tuple(self._lost.get(note.member or "", ()))
            if note.kind in UNREAD and lost:
                self._gathering.notes[at] = replace(note, keys=lost)

    def _window(self, item: Item, path: KeyPath) -> Window | None:
        """Return the stretch of the file; None, and a note, where it is not there. ``path`` is whose it is."""
        gathering = self._gathering
        if item.packed:
            what = f"{item.file} was packed with {', '.join(item.packed)[:80]}, which ckptdoctor cannot read"
            gathering.note(NoteKind.NOT_EXAMINED, what, item.file)
        try:
            source = gathering.folder.open(item.file)
        except (HostileError, UnreadableError) as error:
            self._tell(item, error)
            self._lost[item.file][path] = None
            return None
        whole = item.offset + item.length <= source.size
        if not whole:
            self._cut(item, source.size)
            self._lost[item.file][path] = None
        there = min(item.length, source.size - item.offset)
        self._used[item.file] = self._used.get(item.file, 0) + max(0, there)
        if self._used[item.file] > _MOST_USES * source.size:
            self._overlapping(item)
            self._lost[item.file][path] = None
            return None
        if item.packed or not whole:  # no value, but a pickle for all that
            if there > 0:
                gathering.named(Window(source, item.offset, there), item.file)
            return None
        return Window(source, item.offset, item.length)

    def _tell(self, item: Item, error: CkptDoctorError) -> None:
        if item.file in self._lost:
            return
        self._lost[item.file] = {}
        if isinstance(error, HostileError):
            self._gathering.note(NoteKind.FILE_OUTSIDE, error.message, item.file[:120])
        else:
            self._gathering.note(NoteKind.FILE_MISSING, f"{item.file[:120]} is missing", item.file[:120])

    def _cut(self, item: Item, size: int) -> None:
        if item.file not in self._lost:
            self._lost[item.file] = {}
            message = f"{item.file} was cut off: it has {plural(size, 'byte')}, and .metadata expects more"
            self._gathering.note(NoteKind.FILE_DAMAGED, message, item.file, size)

    def _overlapping(self, item: Item) -> None:
        if item.file not in self._lost:
            self._lost[item.file] = {}
            message = f"the values in {item.file[:120]} overlap, which no save writes: not all are read"
            self._gathering.note(NoteKind.FILE_DAMAGED, message, item.file[:120], item.offset)


def _label(item: Item) -> str:
    return f"{item.file}@{item.offset}"


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


# ---- single tensors of ``torch.save``, thousands of them: those with the same pickle are read once
#
# The pickle of a tensor says its dtype, shape and storage, but not where that lies: tensors of one shape have the same.


_VERSION = b"3\n"
_LONGEST_PICKLE = 4096  # the pickle of a tensor has a few hundred bytes


class _Templates:
    """What is known of pickles that were seen. None from ``read`` means: look closer, there is something to say."""

    def __init__(self) -> None:
        self._known: dict[bytes, Tensor | None] = {}
        self.globals: list[GlobalName] = []  # that the pickles name, each once

    def read(self, source: Source, shift: int, label: str, path: KeyPath) -> Tensor | None:
        """Return the one tensor in the archive that is all of ``source``, which begins at ``shift`` of its file."""
        try:
            directory = read_directory(source)
            member = pickle_record(directory)
            data, notes = pickle_bytes(source, member)
            usual = read_word(source, directory, "byteorder") == b"little"
            usual = usual and read_word(source, directory, "version") == _VERSION
            if notes or directory.notes or not usual or len(data) > _LONGEST_PICKLE:
                return None
            if data not in self._known:
                table = ZipStorages(source.file, directory)
                pickle = decode_member(data, member)
                contents = interpret(pickle, table, f"{label}/{member.name}")
                odd = pickle.ambiguities or pickle.discards_calls or pickle.end < len(data)
                tree = contents.tree if not (odd or contents.notes or table.notes) else None
                self._known[data] = tree if isinstance(tree, Tensor) and _is_plain(tree) else None
                self.globals += contents.globals
        except CkptDoctorError:
            return None
        template = self._known[data]
        record = directory.find(f"data/{template.storage.key}") if template and template.storage else None
        if template is None or record is None:
            return None
        return _placed(template, record, source.file, shift, label, path)


def _is_plain(tensor: Tensor) -> bool:
    """Return whether there is nothing to it but a view of one storage."""
    storage = tensor.storage
    return storage is not None and storage.extent is not None and not tensor.parts and tensor.values is None


def _placed(tensor: Tensor, record: Record, file: str, shift: int, label: str, path: KeyPath) -> Tensor | None:
    assert tensor.storage is not None
    if record.method != structs.STORED or record.size != tensor.storage.nbytes:
        return None
    extent = Extent(file, record.data_offset + shift, record.compressed)
    crc = record.crc if record.crc or not record.size else None
    known = tensor.storage
    storage = Storage(f"{label}/{known.key}", known.nbytes, known.dtype, known.device, extent, crc)
    return replace(tensor, path=path, storage=storage)
