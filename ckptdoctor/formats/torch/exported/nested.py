"""Checkpoints of torch.save that are records of another archive, read by the readers of such files."""

from __future__ import annotations

from dataclasses import replace

from ckptdoctor.checkpoint import (
    Aside,
    Checkpoint,
    Extent,
    GlobalName,
    KeyPath,
    Mapping,
    Node,
    Note,
    Part,
    Source,
    Special,
    Storage,
    Tensor,
)
from ckptdoctor.errors import DamagedError
from ckptdoctor.formats.archives import Archive, is_whole
from ckptdoctor.formats.torch import legacy as torch_legacy
from ckptdoctor.formats.torch import zip as torch_zip
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.record import shown
from ckptdoctor.formats.window import Window
from ckptdoctor.noun import noun

_HEAD = 4096


@noun
class Inner:
    """A checkpoint in a record: its top entries, or the one value that it is, as nouns of the file around it."""

    value: Node
    tensors: tuple[Tensor, ...]
    storages: tuple[Storage, ...]
    globals: tuple[GlobalName, ...]
    notes: tuple[Note, ...]
    asides: tuple[Aside, ...]


def read_inner(source: Source, archive: Archive, name: str, path: KeyPath) -> Inner:
    """The checkpoint in the record ``name``, whose contents are to stand at ``path``. Raises DamagedError."""
    record = archive.found[name]
    if record.method != structs.STORED or not is_whole(source, record):
        raise DamagedError(f"{shown(name)} is damaged or compressed, so it is not read.", member=shown(name))
    window = Window(source, record.data_offset, record.size)
    head = window.read(0, min(_HEAD, window.size))
    for format_ in (torch_zip, torch_legacy):
        container = format_.examine(window, head)
        if container is not None and container.readable:
            return _moved(format_.read(window, container), source.file, record.data_offset, name, path)
    raise DamagedError(f"{shown(name)} is no file of torch.save.", member=shown(name))


def _moved(inner: Checkpoint, file: str, base: int, name: str, path: KeyPath) -> Inner:
    """The same with offsets in the whole file, and with keys of storages that tell the record."""
    storages: dict[str, Storage] = {}
    for storage in inner.storages:
        extent = storage.extent
        placed = None if extent is None else Extent(file, base + extent.offset, extent.length)
        storages[storage.key] = replace(storage, key=f"{name}/{storage.key}", extent=placed)
    mover = _Mover(storages)
    value = mover.node(inner.tree, path)
    notes = tuple([replace(note, member=shown(name)) for note in inner.notes])
    globals_ = tuple([replace(each, member=shown(name)) for each in inner.globals])
    asides = tuple([replace(each, member=_below(shown(name), each.member)) for each in inner.asides])
    return Inner(value, tuple(mover.tensors), tuple(storages.values()), globals_, notes, asides)


def _below(name: str, member: str) -> str:
    return f"{name}/{member}" if member else name


class _Mover:
    """Rebuilds the top of a tree with its tensors in other places; ``tensors`` are those that it met, in order."""

    def __init__(self, storages: dict[str, Storage]) -> None:
        self._storages = storages
        self.tensors: list[Tensor] = []

    def node(self, node: Node, path: KeyPath) -> Node:
        """A tensor, or a dict of tensors; other values stay as they are."""
        if isinstance(node, Tensor):
            return self._tensor(node, path)
        if not isinstance(node, Mapping):
            return node
        entries: list[tuple[Part, Node]] = []
        for part, value in node.entries:
            inside = self._tensor(value, (*path, part)) if isinstance(value, Tensor) else value
            entries.append((part, inside))
        return Mapping(node.kind, tuple(entries), node.attributes)

    def _tensor(self, tensor: Tensor, path: KeyPath) -> Tensor:
        made = self._inner(tensor, path, len(tensor.path))
        self.tensors.append(made)
        return made

    def _inner(self, tensor: Tensor, path: KeyPath, above: int) -> Tensor:
        storage = None if tensor.storage is None else self._storages[tensor.storage.key]
        below: tuple[Part | Special, ...] = tensor.path[above:]
        parts = tuple([self._inner(part, path, above) for part in tensor.parts])
        return replace(tensor, path=(*path, *below), storage=storage, parts=parts)
