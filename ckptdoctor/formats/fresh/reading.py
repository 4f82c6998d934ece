"""Reads elements out of any number of files while an output is written: stored, deflated, in either byte order."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import FileSource, Storage
from ckptdoctor.edits.elements import Elements, NewStorage
from ckptdoctor.errors import DamagedError
from ckptdoctor.formats.elements import chunks
from ckptdoctor.noun import noun
from ckptdoctor.wording import plural

if TYPE_CHECKING:  # importing it takes longer than most files need to be written
    from tempfile import SpooledTemporaryFile

_CHUNK = 1 << 20
_HELD = 16 << 10  # bytes of a storage that are kept in memory: of small ones there may be more than files can be open
_AT_ONCE = 4 << 20  # bytes of one reading that are computed with
_CODES = {2: "H", 4: "I", 8: "Q"}


@noun
class Place:
    """Where the bytes of a storage are, which are requested by their offset in it."""

    storage: Storage


@noun
class ComputedBytes:
    """Makes the bytes of elements each time it is called; ``turn`` bytes at a time change their order."""

    elements: Elements
    places: Mapping[str, Place]
    turn: int = 1

    def __call__(self) -> Iterator[bytes]:
        """Yield the bytes, chunk by chunk."""
        with _Files(self.places) as files:
            yield from turned(chunks(self.elements, files.read), self.turn)


def bytes_of(several: Sequence[Elements], places: Mapping[str, Place]) -> Iterator[bytes]:
    """Yield the bytes of elements, one after another; small ones that follow each other in one chunk."""
    parts: list[bytes] = []
    held = 0
    with _Files(places) as files:
        for elements in several:
            for chunk in chunks(elements, files.read, _AT_ONCE):
                parts.append(chunk)
                held += len(chunk)
                if held >= _CHUNK:
                    yield b"".join(parts) if len(parts) > 1 else parts[0]
                    parts, held = [], 0
    if parts:
        yield b"".join(parts)


def of_storage(storage: Storage, begin: int, length: int, turn: int = 1) -> Callable[[], Iterator[bytes]]:
    """Return what makes ``length`` bytes from ``begin`` of a storage, in bounded memory even where it is deflated."""

    def produce() -> Iterator[bytes]:
        source = inflated(storage) if storage.compressed else _stored(storage, begin, length)
        if storage.compressed:
            source = _cut(source, begin, length)
        yield from turned(source, turn)

    return produce


def _stored(storage: Storage, begin: int, length: int) -> Iterator[bytes]:
    if storage.extent is None:
        return
    first = storage.extent.offset + begin
    with FileSource(storage.extent.file) as source:
        for at in range(first, first + length, _CHUNK):
            yield source.read(at, min(_CHUNK, first + length - at))


def produced(storage: Storage) -> Iterator[bytes]:
    """Return all bytes of a storage that is not in a file as it is: a new one, or a compressed one."""
    if not isinstance(storage, NewStorage):
        return inflated(storage)
    return ComputedBytes(storage.holds, {key: Place(each) for key, each in storage.of.items()})()


def inflated(storage: Storage) -> Iterator[bytes]:
    """Yield all bytes of a deflated storage. Raises DamagedError when it does not inflate to what it should be."""
    assert storage.extent is not None
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    done, at, end, rest = 0, storage.extent.offset, storage.extent.offset + storage.extent.length, b""
    with FileSource(storage.extent.file) as source:
        while done < storage.nbytes:
            if not rest:
                rest = source.read(at, min(_CHUNK, end - at))
                at += len(rest)
            try:
                piece = inflater.decompress(rest, min(_CHUNK, storage.nbytes - done + 1))
            except zlib.error as error:
                raise DamagedError(f"Storage {storage.key} cannot be inflated near byte {at:,}: {error}.") from error
            rest = inflater.unconsumed_tail
            done += len(piece)
            if done > storage.nbytes or (not piece and not rest and (inflater.eof or at >= end)):
                break
            yield piece
    if done != storage.nbytes:
        raise DamagedError(f"Storage {storage.key} does not inflate to its {plural(storage.nbytes, 'byte')}.")


def _cut(data: Iterator[bytes], begin: int, length: int) -> Iterator[bytes]:
    at = 0
    for chunk in data:
        first, last = max(begin - at, 0), min(begin + length - at, len(chunk))
        if first < last:
            yield chunk[first:last]
        at += len(chunk)


def turned(data: Iterator[bytes], turn: int) -> Iterator[bytes]:
    """Yield the same with the order of each ``turn`` bytes reversed."""
    if turn == 1:
        yield from data
        return
    left = b""
    for chunk in data:
        left += chunk
        whole = len(left) - len(left) % turn
        values = array(_CODES[turn])
        values.frombytes(left[:whole])
        values.byteswap()
        left = left[whole:]
        yield values.tobytes()
    if left:
        raise DamagedError(
            f"{plural(len(left), 'byte is', 'bytes are')} left over at the end of values of {turn} bytes each."
        )


class _Files:
    """The files of some places, each opened once.

    A storage that is in none of them as it is, is first written to a temporary one, or kept where it is small.
    """

    def __init__(self, places: Mapping[str, Place]) -> None:
        self._places = places
        self._stack = ExitStack()
        self._files: dict[str, FileSource] = {}
        self._inflated: dict[str, SpooledTemporaryFile[bytes]] = {}

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Return bytes of the storage that is called so."""
        storage = self._places[name].storage
        if storage.compressed or isinstance(storage, NewStorage):
            file = self._inflated.get(name) or self._spooled(name, storage)
            file.seek(offset)
            return file.read(length)
        assert storage.extent is not None
        path = storage.extent.file
        if path not in self._files:
            self._files[path] = self._stack.enter_context(FileSource(path))
        return self._files[path].read(storage.extent.offset + offset, length)

    def _spooled(self, name: str, storage: Storage) -> SpooledTemporaryFile[bytes]:
        from tempfile import SpooledTemporaryFile

        file: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(_HELD)  # noqa: SIM115  # the stack closes it
        self._inflated[name] = self._stack.enter_context(file)
        for chunk in produced(storage):
            file.write(chunk)
        return file
