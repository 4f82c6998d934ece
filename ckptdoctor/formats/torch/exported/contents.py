"""Turns an exported program into the nouns of a checkpoint: the tree is its state dict.

The constants are an attribute of that dict. Where an archive holds several models, each has a dict of its own.
"""

from __future__ import annotations

import json
from typing import Any

from ckptdoctor.checkpoint import (
    Aside,
    Checkpoint,
    Container,
    DType,
    Extent,
    GlobalName,
    KeyPath,
    Mapping,
    Node,
    Note,
    NoteKind,
    Opaque,
    Part,
    Source,
    Special,
    Storage,
    Tensor,
)
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.errors import CkptDoctorError, DamagedError
from ckptdoctor.formats.other_pickles import of_records
from ckptdoctor.formats.torch import legacy as torch_legacy
from ckptdoctor.formats.torch import zip as torch_zip
from ckptdoctor.formats.torch.exported.layouts import Place, places_of
from ckptdoctor.formats.torch.read.views import MAX_DIMENSIONS
from ckptdoctor.formats.torch.zip import structs
from ckptdoctor.formats.torch.zip.records import shown
from ckptdoctor.formats.window import Window
from ckptdoctor.formats.zip_archives import Archive, RecordStorages, is_whole, order_notes, required
from ckptdoctor.noun import noun, replace

_JSON = ".json"
_ORDERED = "collections.OrderedDict"


def read_program(source: Source, container: Container) -> Checkpoint:
    """Return the state dict and the constants. Raises DamagedError when their lists cannot be read."""
    archive = required(source, container.head)
    places = places_of(archive)
    lists: list[Listed] = []
    trees: list[tuple[Part, Node]] = []
    for place in places:
        path: KeyPath = (place.model,) if len(places) > 1 else ()
        trees.append((place.model, _model(source, archive, place, path, lists)))
    tree = trees[0][1] if len(trees) == 1 else Mapping("dict", tuple(trees))
    read = frozenset[str]().union(*[each.read for each in lists])
    others = [each for each in archive.records if each.name not in read]
    return Checkpoint(
        path=source.path,
        format=container.format,
        size=source.size,
        tree=tree,
        tensors=tuple([tensor for each in lists for tensor in each.tensors]),
        storages=tuple([storage for each in lists for storage in each.storages]),
        state_dicts=find_state_dicts(tree),
        globals=tuple([use for each in lists for use in each.globals]),
        notes=(*order_notes(source, archive, places[0].folder), *[note for each in lists for note in each.notes]),
        identity=source.identity,
        bytes_read=source.bytes_read,
        container=container,
        asides=(*[aside for each in lists for aside in each.asides], *of_records(source, others)),
    )


def _model(source: Source, archive: Archive, place: Place, path: KeyPath, lists: list[Listed]) -> Mapping:
    weights = _listed(source, archive, place.weights, path, lists)
    constants = _listed(source, archive, place.constants, (*path, Special(".constants")), lists)
    beside: list[tuple[Part, Node]] = [("constants", Mapping("dict", constants))] if constants else []
    return Mapping(_ORDERED, weights, Mapping("dict", tuple(beside)) if beside else None)


def _listed(
    source: Source, archive: Archive, name: str, path: KeyPath, lists: list[Listed]
) -> tuple[tuple[Part, Node], ...]:
    """Return the entries of a list of weights, or of a file of torch.save that holds them in a dict."""
    if not name:
        return ()
    listed = Listed(source, archive, path)
    lists.append(listed)
    if name.endswith(_JSON) and not name.rpartition("/")[2].startswith("serialized_"):
        listed.take(name)
        return tuple(listed.entries.items())
    found = listed.file(name, path)
    return found.entries if isinstance(found, Mapping) else ()


# ---- the weights or constants of one model, from the JSON that lists them
#
# Source: ``PayloadConfig`` and ``TensorMeta`` of ``torch._export.serde.schema``, as ``torch.export.load`` reads them.


_MAX_COUNT = (1 << 63) - 1
_STRIDED = 7

# torch._export.serde.schema.ScalarType
_DTYPES = {
    **dict(enumerate(("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"), 1)),
    **dict(enumerate(("complex32", "complex64", "complex128", "bool", "bfloat16"), 9)),
    **dict(enumerate(("uint16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 28)),
    **dict(enumerate(("float8_e8m0fnu", "uint32", "uint64"), 33)),
}


class Listed:
    """Everything that one list names: ``entries`` by key, in its order."""

    def __init__(self, source: Source, archive: Archive, path: KeyPath) -> None:
        self._source = source
        self._archive = archive
        self._path = path
        self._known: dict[str, Storage] = {}
        self.entries: dict[str, Node] = {}
        self.tensors: list[Tensor] = []
        self.storages: list[Storage] = []
        self.globals: list[GlobalName] = []
        self.notes: list[Note] = []
        self.asides: list[Aside] = []
        self.read: set[str] = set()  # records that need not be looked at again

    def take(self, name: str) -> None:
        """Read the list in the record ``name``. Raises DamagedError where it is none."""
        folder = name[: name.rfind("/") + 1]
        try:
            found = json.loads(self._archive.read(self._source, name))
            config = found["config"]
            pairs = list(config.items())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DamagedError(f"{shown(name)} is not a list of weights.", member=shown(name)) from error
        table = RecordStorages(self._source, self._archive, folder, "" if folder.endswith("weights/") else "constants/")
        for key, meta in pairs:
            try:
                self.entries[key] = self._entry(key, meta, folder, table)
            except (ValueError, KeyError, TypeError, AttributeError, CkptDoctorError) as error:
                message = f"{key[:200]} cannot be read from {shown(name)}: {type(error).__name__}"
                self.notes.append(Note(NoteKind.TENSOR_ODD, message, shown(name), keys=((*self._path, key),)))
        self.notes += table.notes

    def _entry(self, key: str, meta: dict[str, Any], folder: str, table: RecordStorages) -> Node:
        record, path = str(meta["path_name"]), (*self._path, key)
        about = meta["tensor_meta"]
        if meta["use_pickle"]:
            return self._pickled(f"{folder}{record}", path, about is not None)
        element = BY_NAME[_DTYPES[about["dtype"]]]
        if about["layout"] != _STRIDED:
            raise ValueError("layout")
        shape, stride, offset = (
            _integers(about["sizes"]),
            _integers(about["strides"]),
            _integer(about["storage_offset"]),
        )
        if len(shape) != len(stride) or len(shape) > MAX_DIMENSIONS:
            raise ValueError("dimensions")
        reach = _reach(shape, stride, offset, element)
        is_parameter, grad, device = meta["is_param"] is True, about["requires_grad"] is True, _device(about["device"])
        storage = self._storage(record, element, device, reach, table)
        if not storage.nbytes and reach:  # a weight that was exported without values, as torch.export.load takes it
            made = Tensor(path, element, shape, stride, None, 0, "meta", grad, is_parameter, "torch.export")
        else:
            self._check(key, reach, storage, element)
            made = Tensor(path, element, shape, stride, storage, offset, device, grad, is_parameter, "torch.export")
        self.tensors.append(made)
        return made

    def _storage(self, record: str, element: DType, device: str, reach: int, table: RecordStorages) -> Storage:
        if record not in self._known:
            self.read.add(f"{table.folder}{record}")
            found = self._archive.found.get(f"{table.folder}{record}")
            nbytes = reach * (element.bits // 8) if found is None else found.size
            self._known[record] = table.find(record, element, device, nbytes)
            self.storages.append(self._known[record])
        return self._known[record]

    def _check(self, key: str, reach: int, storage: Storage, element: DType) -> None:
        there = storage.nbytes * 8 // element.bits
        if reach > there:
            message = (
                f"{key} reaches to element {reach:,} of {storage.key}, which has {there:,}; torch rejects the file"
            )
            self.notes.append(Note(NoteKind.TENSOR_OUT_OF_BOUNDS, message))

    def _pickled(self, name: str, path: KeyPath, is_tensor: bool) -> Node:
        """Return what is saved as a file of its own.

        It is a tensor of a class of its own, or an object that is never made.
        """
        if not is_tensor or name not in self._archive.found:
            return Opaque("an object of the program")
        return self.file(name, path)

    def file(self, name: str, path: KeyPath) -> Node:
        """Return what a record of torch.save holds. Raises DamagedError."""
        inner = read_inner(self._source, self._archive, name, path)
        self.tensors += inner.tensors
        self.storages += inner.storages
        self.globals += inner.globals
        self.notes += inner.notes
        self.asides += inner.asides
        self.read.add(name)
        return inner.value


def _integers(values: list[dict[str, Any]]) -> tuple[int, ...]:
    return tuple([_integer(value) for value in values])


def _integer(value: dict[str, Any]) -> int:
    number = value["as_int"]
    if type(number) is not int or not 0 <= number <= _MAX_COUNT:
        raise ValueError("integer")
    return number


def _reach(shape: tuple[int, ...], stride: tuple[int, ...], offset: int, element: DType) -> int:
    """Return how many elements the storage must have, or 0 for an empty tensor."""
    if 0 in shape:
        return 0
    count = 1
    for size in shape:
        count *= size
    reach = offset + 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if max(count, reach) * element.bits > _MAX_COUNT:
        raise ValueError("size")
    return reach


def _device(value: dict[str, Any]) -> str:
    kind, index = str(value["type"]), value.get("index")
    return f"{kind}:{index}" if type(index) is int else kind


# ---- checkpoints of ``torch.save`` that are records of the archive


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
    """Return the checkpoint in the record ``name``, with its contents at ``path``. Raises DamagedError."""
    record = archive.found[name]
    if record.method != structs.STORED or not is_whole(source, record):
        raise DamagedError(f"{shown(name)} is damaged or compressed, so it is not read.", member=shown(name))
    window = Window(source, record.data_offset, record.size)
    head = window.read(0, min(_HEAD, window.size))
    for format_ in (torch_zip, torch_legacy):
        container = format_.examine(window, head)
        if container is not None and container.readable:
            return _moved(format_.read(window, container), source.file, record.data_offset, name, path)
    raise DamagedError(f"{shown(name)} was not written by torch.save.", member=shown(name))


def _moved(inner: Checkpoint, file: str, base: int, name: str, path: KeyPath) -> Inner:
    """Return the same with offsets in the whole file, and with keys of storages that tell the record."""
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
        """Return a tensor, or a dict of tensors; other values stay as they are."""
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
