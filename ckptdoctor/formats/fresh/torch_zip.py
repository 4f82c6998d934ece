"""Lays out archives as ``torch.save`` writes them, out of contents that any container held."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from ckptdoctor.checkpoint import ROOT, Checkpoint, Cycle, KeyPath, Node, Storage, Tensor, children
from ckptdoctor.checkpoint import Mapping as Entries
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.checkpoint.changed_trees import mapped, tensors_in
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.edits.applied.wanted import Stored, Wanted
from ckptdoctor.edits.elements import NewStorage
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.fresh.pickling import pickled, unsayable
from ckptdoctor.formats.fresh.reading import of_storage
from ckptdoctor.formats.fresh.strided import refusal, segments, tensor_of, turn_of
from ckptdoctor.formats.suffixes import TORCH_ZIP
from ckptdoctor.formats.torch.zip import layout
from ckptdoctor.formats.torch.zip.layout import Item
from ckptdoctor.noun import replace
from ckptdoctor.wording import plural
from ckptdoctor.writing.checksums import checksums
from ckptdoctor.writing.recipe import Copy, Generated, Literal, Recipe, Segment


def arranged(tree: Node, original: Checkpoint, output: str, file: str) -> Wanted:
    """Return the same contents as an archive called ``output`` can hold them; its tensors become what torch has.

    Values come from files of the byte order of ``original``. Raises RefusedError for storages that are not whole.
    """
    storages = _Storages(original.big_endian)

    def placed(node: Tensor | Cycle) -> Node:
        if not isinstance(node, Tensor):
            return node
        tensor = torch_tensor(node)
        return replace(tensor, storage=storages.of(tensor), values=None, chunks=())

    tree = mapped(tree, placed)
    contents = Checkpoint(
        path=output,
        format=TORCH_ZIP,
        size=0,
        tree=tree,
        tensors=tuple(tensors_in(tree)),
        storages=tuple(storages.made.values()),
        state_dicts=find_state_dicts(tree),
    )
    return Wanted(original, contents, stored=storages.stored, file=file)


def unwritable(node: Node, root: KeyPath = ROOT) -> Iterator[tuple[KeyPath, str]]:
    """Yield what cannot be written into an archive of torch, each place with why."""
    stack: list[tuple[KeyPath, Node]] = [(root, node)]
    while stack:
        path, each = stack.pop()
        reason = unsayable(each) or (refusal(each) if isinstance(each, Tensor) else None)
        if reason is not None:
            yield path, reason
        elif isinstance(each, (Entries, Items)):
            stack += reversed([((*path, part), child) for part, child in children(each)])


class _Storages:
    """The storages of an archive in the order of their first use; tensors that shared one go on sharing it."""

    def __init__(self, swapped: bool) -> None:
        self._swapped = swapped
        self.made: dict[object, Storage] = {}
        self.stored: dict[str, Stored] = {}

    def of(self, tensor: Tensor) -> Storage:
        """Return the tensor's storage in the archive."""
        identity = self._identity(tensor)
        if identity not in self.made:
            key, held = str(len(self.made)), self._held(tensor)
            self.stored[key] = held
            self.made[identity] = Storage(key, held.nbytes, tensor.dtype, "cpu", None)
        return self.made[identity]

    def _identity(self, tensor: Tensor) -> object:
        kind = tensor.dtype.storage_class
        if tensor.chunks or (tensor.storage is None and tensor.values is None):
            return tensor.path, kind
        if tensor.storage is None:
            return id(tensor.values), kind
        if isinstance(tensor.storage, NewStorage):
            return tensor.storage.key, kind
        where = tensor.storage.extent
        if where is None or not where.length:
            return tensor.storage.key, tensor.path if where is None else where.file, kind
        return where.file, where.offset, where.length, kind

    def _held(self, tensor: Tensor) -> Stored:
        storage = tensor.storage
        if tensor.chunks:
            data = segments(tensor)
            return Stored(sum(each.length for each in data), data, shown=tensor)
        if storage is None:
            held = b"" if tensor.values is None else bytes(tensor.values)
            return Stored(len(held), (Literal(held),) if held else ())
        if isinstance(storage, NewStorage):
            whole = tensor_of(storage)
            return Stored(storage.nbytes, segments(whole, self._swapped), shown=whole)
        if storage.nbytes and (storage.extent is None or not storage.compressed):
            there = 0 if storage.extent is None else storage.extent.length
            if there != storage.nbytes:
                message = (
                    f"Storage {storage.key} should have {plural(storage.nbytes, 'byte')}, but the file has {there:,}"
                )
                raise RefusedError(f"{message}; recover what is intact with ckptdoctor salvage.")
        return Stored(storage.nbytes, *self._copied(storage))

    def _copied(self, storage: Storage) -> tuple[tuple[Segment, ...], int | None]:
        if not storage.nbytes or storage.extent is None:
            return (), None
        turn = turn_of(storage) if self._swapped else 1
        if storage.compressed or turn > 1:
            made = Generated(storage.nbytes, of_storage(storage, 0, storage.nbytes, turn))
            return (made,), storage.crc32 if turn == 1 else None
        return (Copy(storage.extent.offset, storage.nbytes, storage.extent.file),), storage.crc32


def torch_tensor(tensor: Tensor) -> Tensor:
    """Return the tensor as it will be in an archive: on the CPU, and in C order where it has no storage of its own."""
    rebuild = f"torch._utils._rebuild_tensor_v{2 if tensor.dtype.storage_class else 3}"
    rebuild = "torch._utils._rebuild_parameter" if tensor.is_parameter else rebuild
    plain = replace(tensor, device="cpu", rebuild=rebuild, subclass=None, details=())
    if tensor.chunks or (tensor.storage is None and tensor.values is None):
        return replace(plain, stride=contiguous_stride(tensor.shape), offset=0)
    return plain


def name_of(path: str) -> str:
    """Return the folder in the archive: torch takes the file's name without its suffix."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return stem if stem.isascii() and stem.isprintable() and stem.strip() and not stem.startswith(".") else "archive"


def write(wanted: Wanted) -> Recipe:
    """Return how to write the archive. Values without a known checksum are read for theirs."""
    contents = wanted.contents
    stored = {each.key: wanted.stored[each.key] for each in contents.storages}
    head = pickled(contents.tree, {key: key for key in stored})
    sums = iter(checksums([each.data for each in stored.values() if each.crc is None]))
    return Recipe(wanted.file, archive(name_of(contents.path), head, stored, sums))


def archive(folder: str, head: bytes, stored: Mapping[str, Stored], sums: Iterator[int]) -> tuple[Segment, ...]:
    """Return an archive of a pickle and its storages.

    ``sums`` are the checksums of those without a known one, in turn.
    """
    items = []
    for key, each in stored.items():
        crc = next(sums) if each.crc is None else each.crc
        items.append(Item(f"{folder}/data/{key}", each.nbytes, crc, each.data))
    return layout.archive(folder, head, items)
