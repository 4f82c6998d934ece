"""Reads the tables of a tar archive of torch: the pickle names storages and tensors by their numbers in these.

Source: ``legacy_load`` in ``torch.serialization._legacy_load``. ``storages`` is the number of storages, then for each a
pickle of (key, location, class), an element count of eight bytes and the raw elements, and a pickle of the views:
(key, key of the whole storage, offset, elements). ``tensors`` is the number of tensors, then for each a pickle of
(key, key of its storage, class), the number of dimensions in eight bytes, sizes, strides and offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import DType, Extent, Note, NoteKind, Source, Storage
from ckptdoctor.checkpoint.dtypes import BY_STORAGE_CLASS
from ckptdoctor.errors import DamagedError, TruncatedError
from ckptdoctor.formats.recognise.tars import Member
from ckptdoctor.formats.torch.read.slots import children
from ckptdoctor.formats.torch.read.storages import MAX_COUNT, storage_key
from ckptdoctor.formats.torch.read.values import bare, full_name, integer, items, text
from ckptdoctor.formats.torch.read.views import MAX_DIMENSIONS
from ckptdoctor.formats.window import Window
from ckptdoctor.noun import noun, replace
from ckptdoctor.pickles import Pickle, decode
from ckptdoctor.pickles.decode import follow
from ckptdoctor.pickles.graph import GlobalUse, Value
from ckptdoctor.wording import plural

STORAGES, TENSORS = "storages", "tensors"

_STEP = 1 << 12
_MOST_PICKLE = 256 << 20


@noun
class Placed:
    """``count`` elements of a storage from ``shift`` on: all of it, or a view."""

    storage: Storage
    element: DType
    count: int
    shift: int = 0


@noun
class Described:
    """A tensor of the table."""

    placed: Placed
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class Cursor:
    """Reads one member from its beginning; errors name the member and the byte of the file."""

    def __init__(self, source: Source, name: str, member: Member | None) -> None:
        if member is None:
            raise DamagedError(f'The archive has no member "{name}", so its tensors cannot be read.', member=name)
        self.name = name
        self.base = member.offset
        self.size = max(0, min(member.size, source.size - member.offset))
        self.whole = member.size
        self.at = 0
        self.globals: list[GlobalUse] = []
        self._window = Window(source, member.offset, self.size)
        self.buffer = b""
        self._begin = 0  # where in the member the buffer begins

    def pickle(self) -> Pickle:
        """Return the pickle that comes next. Raises DamagedError or TruncatedError."""
        length = _STEP
        while True:
            try:
                made = decode(self.buffer, self.at - self._begin) if self._covers(self.at) else None
            except TruncatedError as error:
                if self._begin == self.at and (self._begin + len(self.buffer) == self.size or length > _MOST_PICKLE):
                    self._name(self._broken())
                    raise TruncatedError(f"{self._where()} a pickle breaks off.", member=self.name) from error
                made = None
            except DamagedError as error:
                self._name(self._broken())
                raise type(error)(f"{self._where()} {error.message}", member=self.name) from error
            if made is not None:
                return self._taken(made)
            if self.at >= self.size:
                raise TruncatedError(f"{self._where()} a pickle is missing.", member=self.name)
            length = max(length, len(self.buffer) * 4) if self._begin == self.at and self.buffer else _STEP
            self._begin, self.buffer = self.at, self._window.read(self.at, min(length, self.size - self.at))

    def _covers(self, at: int) -> bool:
        return self._begin <= at < self._begin + len(self.buffer)

    def _taken(self, made: Pickle) -> Pickle:
        self._name(made.globals)
        self.at = self._begin + made.end
        return made

    def _broken(self) -> Sequence[GlobalUse]:
        """Return what the pickle here names in front of the place where it breaks off."""
        return follow(self.buffer, self.at - self._begin).names

    def _name(self, uses: Sequence[GlobalUse]) -> None:
        base = self.base + self._begin
        self.globals += [replace(use, offset=base + use.offset) for use in uses]

    def integers(self, count: int, width: int = 8) -> list[int]:
        """Return little-endian integers. Raises TruncatedError where the member ends before."""
        if count * width > self.size - self.at:
            raise TruncatedError(
                f"{self._where()} {plural(count * width, 'byte is', 'bytes are')} missing.", member=self.name
            )
        raw = self._window.read(self.at, count * width)
        self.at += len(raw)
        return [int.from_bytes(raw[at : at + width], "little", signed=True) for at in range(0, len(raw), width)]

    def count(self, what: str) -> int:
        """Return the number of things that follow.

        Raises DamagedError where it is none, or more than there are bytes.
        """
        number = integer(self.pickle().root)
        if number is None or not 0 <= number <= self.whole:
            raise DamagedError(f"{self._where()} the number of {what} is invalid.", member=self.name)
        return number

    def _where(self) -> str:
        return f'In the member "{self.name}", at byte {self.base + self.at:,} of the file:'


class Tables:
    """Every storage and tensor by key. ``notes`` tells what is missing; what follows it cannot be found."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.storages: dict[str, Placed] = {}
        self.tensors: dict[str, Described] = {}
        self.notes: list[Note] = []
        self.globals: list[GlobalUse] = []

    def take(self, cursor: Cursor) -> None:
        """Read one of the two members. Raises DamagedError when it is invalid."""
        try:
            (self._fill_storages if cursor.name == STORAGES else self._fill_tensors)(cursor)
        except TruncatedError as error:
            if cursor.size == cursor.whole:
                raise
            message = f'the file ends at byte {self._source.size:,}, within the member "{cursor.name}"'
            self.notes.append(Note(NoteKind.TRUNCATED, message, cursor.name, error.offset or self._source.size))
        finally:
            self.globals += cursor.globals

    # ---- storages

    def _fill_storages(self, cursor: Cursor) -> None:
        for _ in range(cursor.count("storages")):
            parts = items(cursor.pickle().root)
            self._storage(cursor, parts if parts is not None else [])
        for view in _listed(cursor.pickle().root):
            self._view(items(view) or [])

    def _storage(self, cursor: Cursor, parts: list[Value]) -> None:
        key, device = (storage_key(parts[0]), text(parts[1])) if len(parts) == 3 else (None, None)
        name = full_name(parts[2]) if len(parts) == 3 else None
        element = BY_STORAGE_CLASS.get((name or "").rpartition(".")[2])
        (count,) = cursor.integers(1)
        if key is None or device is None or element is None or not 0 <= count <= MAX_COUNT // 16:
            raise DamagedError(f"Storage {len(self.storages)} of the archive has no key, location, class and size.")
        nbytes = count * (element.bits // 8 or 1)
        there = min(nbytes, cursor.size - cursor.at)
        extent = Extent(self._source.file, cursor.base + cursor.at, there)
        self.storages[key] = Placed(Storage(key, nbytes, element, device, extent), element, count)
        if there < nbytes:
            raise TruncatedError(f"Storage {key} is cut off.", offset=cursor.base + cursor.size)
        cursor.at += nbytes

    def _view(self, parts: list[Value]) -> None:
        key, root = (storage_key(parts[0]), storage_key(parts[1])) if len(parts) == 4 else (None, None)
        offset, count = (integer(parts[2]), integer(parts[3])) if len(parts) == 4 else (None, None)
        known = key is not None and root in self.storages and offset is not None and count is not None
        if key is None or root is None or offset is None or count is None or not known or min(offset, count) < 0:
            raise DamagedError("A view in the archive belongs to no storage.", member="storages")
        whole = self.storages[root]
        self.storages[key] = Placed(whole.storage, whole.element, min(count, MAX_COUNT), whole.shift + offset)

    # ---- tensors

    def _fill_tensors(self, cursor: Cursor) -> None:
        for _ in range(cursor.count("tensors")):
            parts = items(cursor.pickle().root) or []
            dimensions = cursor.integers(2, 4)[0]  # the four bytes behind it mean nothing
            if not 0 <= dimensions <= MAX_DIMENSIONS:
                raise DamagedError(f"A tensor of the archive has {dimensions} dimensions.", member=cursor.name)
            shape, stride = tuple(cursor.integers(dimensions)), tuple(cursor.integers(dimensions))
            (offset,) = cursor.integers(1)
            key = storage_key(parts[0]) if len(parts) == 3 else None
            placed = self.storages.get(storage_key(parts[1]) or "") if len(parts) == 3 else None
            if key is None:
                raise DamagedError("A tensor of the archive has no key.", member=cursor.name)
            if placed is not None:  # others are missed where the pickle names them
                self.tensors[key] = Described(placed, shape, stride, offset)


def _listed(root: Value) -> Iterator[Value]:
    """Yield the items of a list."""
    for part, found in children(bare(root)).items():
        if isinstance(part, int):
            yield found[-1].value.value
