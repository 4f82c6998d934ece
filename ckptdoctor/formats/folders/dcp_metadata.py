"""Reads the ``.metadata`` of torch.distributed.checkpoint: a pickle of plain records, taken apart by attribute name.

The records are those of ``torch.distributed.checkpoint.metadata`` and ``filesystem._StorageInfo``, torch 2.1 to 2.13;
nothing depends on the names of their classes, and nothing of them is made.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import DType
from ckptdoctor.errors import DamagedError, HostileError
from ckptdoctor.formats.torch.read.objects import LISTS, Kind, object_shape
from ckptdoctor.formats.torch.read.storages import MAX_COUNT
from ckptdoctor.formats.torch.read.values import bare, dtype, filling, integer, items, text
from ckptdoctor.noun import field, noun
from ckptdoctor.pickles import Pickle, decode
from ckptdoctor.pickles.graph import Made, Tuple, Value

Sizes = tuple[int, ...]

_DEEPEST = 64  # dimensions that torch allows

# each chunk of a tensor takes so many bytes of the pickle at least; a list of chunks that many tensors share does not
_CHUNK_BYTES = 16


@noun
class Item:
    """Where one value was written: ``length`` bytes at ``offset`` of ``file``. ``packed``: by what."""

    file: str
    offset: int
    length: int
    packed: tuple[str, ...] = ()


@noun
class Entry:
    """What is saved under one flat key: a tensor in chunks (where each begins, and its size), or some other value."""

    key: str
    dtype: DType | None = None
    size: Sizes | None = None
    chunks: tuple[tuple[Sizes, Sizes], ...] = ()

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor, in chunks."""
        return self.size is not None


@noun(frozen=False)
class Metadata:
    """All that ``.metadata`` says. ``places`` has an item for each chunk (by key and where it begins) and value (None).

    ``paths`` are the places in the nested contents that the flat keys stand for. ``odd`` are keys that are invalid.
    """

    pickle: Pickle
    entries: list[Entry] = field(default_factory=list)
    paths: dict[str, tuple[str | int, ...]] = field(default_factory=dict)
    places: dict[tuple[str, Sizes | None], Item] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)


def read_metadata(data: bytes) -> Metadata:
    """Return what the pickle says. Raises DamagedError when it is not such a record, or breaks off."""
    pickle = decode(data)
    root = attributes(pickle.root)
    if "state_dict_metadata" not in root:
        raise DamagedError(".metadata is not a torch.distributed.checkpoint record.", member=".metadata")
    made = Metadata(pickle)
    left = len(data) // _CHUNK_BYTES
    for key, value in _pairs(root["state_dict_metadata"]):
        name = text(key)
        left -= len(_list(attributes(value).get("chunks")))
        if left < 0:
            raise HostileError("it describes more chunks than fit in it.", member=".metadata")
        entry = _entry(name, value) if name is not None else None
        if entry is not None:
            made.entries.append(entry)
        else:
            made.odd.append(name or "a key that is not a string")
    for key, value in _pairs(root.get("planner_data")):
        name, path = text(key), _path(value)
        if name is not None and path:
            made.paths[name] = path
    for key, value in _pairs(root.get("storage_data")):
        place, item = _place(key), _item(value)
        if place is not None and item is not None:
            made.places[place] = item
    return made


def attributes(value: Value) -> dict[str, Value]:
    """Return the attributes of an object: the dict that it was given as its state. Empty for anything else."""
    value = bare(value)
    if type(value) is not Made:
        return {}
    found: dict[str, Value] = {}
    for state in filling(value).states:
        given = items(state)  # a class with slots gives a pair of states
        for each in [state] if given is None else given:
            found.update({name: item for key, item in _pairs(each) if (name := text(key)) is not None})
    return found


def _pairs(value: Value) -> Iterator[tuple[Value, Value]]:
    value = bare(value)
    if type(value) is not Made:
        return
    shape = object_shape(value)
    if shape.kind is Kind.MAPPING:
        yield from zip(shape.found.keys, shape.found.values, strict=True)


def _entry(key: str, value: Value) -> Entry | None:
    said = attributes(value)
    if "properties" not in said and "chunks" not in said:
        return Entry(key) if type(bare(value)) is Made else None
    kind, size = _dtype(said.get("properties")), _sizes(said.get("size"))
    chunks = [attributes(chunk) for chunk in _list(said.get("chunks"))]
    places = [(_sizes(chunk.get("offsets")), _sizes(chunk.get("sizes"))) for chunk in chunks]
    if kind is None or size is None:
        return None
    sound = [(start, extent) for start, extent in places if start is not None and extent is not None]
    fit = all(len(start) == len(extent) == len(size) for start, extent in sound)
    return Entry(key, kind, size, tuple(sound)) if fit and len(sound) == len(places) else None


def _dtype(properties: Value) -> DType | None:
    """Return the dtype among the properties of a tensor: the first of a tuple, or an attribute."""
    made = bare(properties)
    if type(made) is not Made:
        return None
    for state in filling(made).states:
        given = items(state)
        if given:
            return dtype(given[0])
    return dtype(attributes(made).get("dtype"))


def _sizes(value: Value) -> Sizes | None:
    given = items(value)
    if given is None or len(given) > _DEEPEST:
        return None
    numbers = [integer(each) for each in given]
    sound = [number for number in numbers if number is not None and 0 <= number <= MAX_COUNT]
    return tuple(sound) if len(sound) == len(given) else None


def _list(value: Value) -> list[Value]:
    value = bare(value)
    if type(value) is Made and value.op in LISTS:
        return filling(value).items
    return list(value.items) if type(value) is Tuple else []


def _path(value: Value) -> tuple[str | int, ...]:
    """Return the steps of a flat key; () where one of them is neither text nor a number."""
    found: list[str | int] = []
    for each in _list(value):
        name, number = text(each), integer(each)
        if name is None and (number is None or number < 0):
            return ()
        found.append(name if name is not None else number or 0)
    return tuple(found)


def _place(value: Value) -> tuple[str, Sizes | None] | None:
    said = attributes(value)
    name, start = text(said.get("fqn")), bare(said.get("offset"))
    if name is None:
        return None
    return name, None if start is None else _sizes(start)


def _item(value: Value) -> Item | None:
    said = attributes(value)
    file, offset, length = text(said.get("relative_path")), integer(said.get("offset")), integer(said.get("length"))
    if file is None or offset is None or length is None or offset < 0 or length < 0:
        return None
    packed = [text(each) or "?" for each in _list(said.get("transform_descriptors"))]
    return Item(file, offset, length, tuple(packed))
