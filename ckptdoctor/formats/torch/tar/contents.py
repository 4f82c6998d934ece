"""Turns the members of a tar archive of torch into the nouns of a checkpoint."""

from __future__ import annotations

from ckptdoctor.checkpoint import (
    Aside,
    Checkpoint,
    Container,
    DType,
    KeyPath,
    Note,
    NoteKind,
    Source,
    Storage,
    Tensor,
    show_path,
)
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.formats.recognise.tars import Member, members_of
from ckptdoctor.formats.torch.read.interpret import changed_elsewhere, read_unseen
from ckptdoctor.formats.torch.read.storages import MAX_COUNT, ZIP_ID, Registry, storage_key
from ckptdoctor.formats.torch.read.tensors import INNER_READS, TensorReader
from ckptdoctor.formats.torch.read.tree import TreeBuilder
from ckptdoctor.formats.torch.read.values import bare, items
from ckptdoctor.formats.torch.tar.tables import STORAGES, TENSORS, Cursor, Described, Placed, Tables
from ckptdoctor.formats.window import Window
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Global, PersistentId, String, Tuple, Value, storage_references
from ckptdoctor.pickles.lookups import named_globals
from ckptdoctor.pickles.nested import texts_of

_MEMBER = "pickle"
_REBUILD = "torch._utils._rebuild_tensor"


def read_tar(source: Source, container: Container) -> Checkpoint:
    """Return the contents of the archive. Raises DamagedError when one of its members is invalid."""
    members = members_of(source)
    cursor = Cursor(source, _MEMBER, members.get(_MEMBER))
    pickle = cursor.pickle()
    texts = texts_of(cursor.buffer, pickle)
    tables = Tables(source)
    for name in (STORAGES, TENSORS):
        tables.take(Cursor(source, name, members.get(name)))
    for reference in storage_references(pickle.root):
        _unwrap_class(reference)
    reader = TarReader(tables, pickle.opcodes)
    builder = TreeBuilder(pickle, reader, _MEMBER)
    tree = builder.build()
    read_unseen(reader, pickle)
    notes = [Note(NoteKind.PICKLE_AMBIGUOUS, each.message, _MEMBER, each.offset) for each in pickle.ambiguities]
    return Checkpoint(
        path=source.path,
        format=container.format,
        size=source.size,
        tree=tree,
        tensors=tuple(builder.tensors),
        storages=tuple({id(each.storage): each.storage for each in tables.storages.values()}.values()),
        state_dicts=find_state_dicts(tree),
        globals=named_globals([*cursor.globals, *tables.globals], ""),
        notes=(*notes, *changed_elsewhere(pickle, _MEMBER), *tables.notes, *builder.notes, *reader.notes),
        identity=source.identity,
        bytes_read=source.bytes_read,
        container=container,
        asides=_asides(source, members, cursor, texts),
    )


def _asides(
    source: Source, members: dict[str, Member], cursor: Cursor, texts: list[tuple[int, bytes]]
) -> tuple[Aside, ...]:
    """Return what other pickles name.

    They are in texts, behind the end of the main one, and all other members.
    """
    from ckptdoctor.formats.other_pickles import Search

    search = Search()
    search.texts(texts, _MEMBER, cursor.base)
    search.rest(Window(source, cursor.base, cursor.size), cursor.at, _MEMBER)
    for name, member in members.items():
        if name not in (_MEMBER, STORAGES, TENSORS) and member.offset < source.size:
            there = min(member.size, source.size - member.offset)
            search.file(Window(source, member.offset, there), name)
    return tuple(search.found)


def _unwrap_class(reference: PersistentId) -> None:
    """Give (class, file, source) the form that files of torch 0.1.10 and later have: ("module", class, …)."""
    parts = items(reference.id)
    if parts is not None and len(parts) == 3 and type(bare(parts[0])) is Global:
        reference.id = Tuple(op.TUPLE, [String(op.BINUNICODE, "module"), *parts])


class _NoStorages:
    """No persistent id of such a pickle names a storage by itself."""

    id_parts = ZIP_ID

    def find(self, key: str, dtype: DType | None, device: str, nbytes: int) -> Storage:
        """Return a storage without values."""
        return Storage(key, nbytes, dtype, device, None)


class TarReader(TensorReader):
    """Gives the tensors and storages that the pickle names by their keys in the tables."""

    def __init__(self, tables: Tables, opcodes: int) -> None:
        super().__init__(Registry(_NoStorages(), _MEMBER), _MEMBER, opcodes + INNER_READS)
        self._tables = tables

    def raw_storage(self, node: PersistentId, path: KeyPath) -> Tensor | None:
        """Return the tensor or storage with this key, or None for anything else."""
        key = storage_key(node.id)
        if key is None:
            return None
        described = self._tables.tensors.get(key)
        if described is not None:
            return self._tensor(described, path)
        placed = self._tables.storages.get(key)
        if placed is None:
            message = f"{show_path(path)} is tensor {key}, which is not in the archive: torch rejects the file"
            self.notes.append(Note(NoteKind.STORAGE_MISSING, message, _MEMBER, keys=(path,)))
            return None
        return _whole(placed, path)

    def refuse_reference(self, node: PersistentId, path: KeyPath) -> None:
        """Say nothing more than ``raw_storage`` says of it."""

    def _tensor(self, described: Described, path: KeyPath) -> Tensor | None:
        placed, shape, stride = described.placed, described.shape, described.stride
        offset, storage = described.offset + placed.shift, placed.storage
        reach = offset + 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        count = 1
        for size in shape:
            count *= size
        if min((offset, *shape, *stride)) < 0 or max(count, reach) * placed.element.bits > MAX_COUNT:
            message = f"{show_path(path)} cannot be a tensor: its shape is {list(shape)}; torch rejects the file"
            self.notes.append(Note(NoteKind.TENSOR_ODD, message, _MEMBER, keys=(path,)))
            return None
        there = storage.nbytes * 8 // placed.element.bits
        if 0 not in shape and reach > there:
            message = f"{show_path(path)} reaches to element {reach:,} of storage {storage.key}, which has {there:,}"
            self.notes.append(Note(NoteKind.TENSOR_OUT_OF_BOUNDS, f"{message}; torch rejects the file", _MEMBER))
        return Tensor(path, placed.element, shape, stride, storage, offset, storage.device, rebuild=_REBUILD)

    def try_inner(self, value: Value, path: KeyPath, depth: int) -> Tensor | None:
        """Return a tensor inside another one, by its key in the tables, too."""
        node = bare(value)
        if type(node) is PersistentId:
            return self.raw_storage(node, path)
        return super().try_inner(value, path, depth)


def _whole(placed: Placed, path: KeyPath) -> Tensor:
    """Return a storage saved on its own, as the flat tensor of its elements."""
    name, device = f"torch.{placed.element.storage_class}", placed.storage.device
    return Tensor(path, placed.element, (placed.count,), (1,), placed.storage, placed.shift, device, rebuild=name)
