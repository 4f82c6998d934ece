"""What is packed in a file: names, and the bytes of each, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ckptdoctor.checkpoint import Container, Source
from ckptdoctor.errors import DamagedError, TruncatedError
from ckptdoctor.formats.packed.streams import STREAMS, decompressed
from ckptdoctor.formats.packed.thin import Thin
from ckptdoctor.formats.recognise.members import is_junk, may_be_weights
from ckptdoctor.formats.torch.zip.record import Record, shown
from ckptdoctor.noun import noun

_ZIPS = ("zip archive", "TorchServe archive")
_TAR = "tar archive"

# the parts of a checkpoint that was unpacked and packed again, one of which ("data.pkl") looks like one itself
_PARTS = frozenset({"data.pkl", "byteorder", "version"})

_CHUNK = 1 << 20


@noun
class Inside:
    """One file in a packed one. ``name`` is "" where it has none; ``packed`` is how many bytes it takes there.

    ``offset`` is where it lies, where it lies there as it is: those bytes are all of it.
    """

    name: str
    packed: int
    chunks: Callable[[], Iterator[bytes]]
    locked: bool = False  # only a password opens it
    offset: int | None = None


def insides(source: Source, container: Container) -> list[Inside]:
    """The files in a packed one that may be checkpoints, by their names; all of them, where there is only one."""
    if container.format in STREAMS:
        return [Inside("", source.size, lambda: decompressed(source, container.format))]
    found = list(_in_tar(source) if container.format == _TAR else _zipped(source, container))
    found = [each for each in found if not is_junk(each.name)]
    last = {each.name.rpartition("/")[2] for each in found}
    if "data.pkl" in last and len(last & _PARTS) > 1:
        return []
    return found if len(found) == 1 else [each for each in found if may_be_weights(each.name)]


def chosen(candidates: Sequence[Inside], name: str | None) -> Inside | None:
    """The one that is called so, or the only one there is."""
    if name is not None:
        candidates = [each for each in candidates if each.name == name]
    return candidates[0] if len(candidates) == 1 else None


def _zipped(source: Source, container: Container) -> Iterator[Inside]:
    from ckptdoctor.formats.archives import archive_of
    from ckptdoctor.formats.torch.zip.structs import ENCRYPTED, STRONG_ENCRYPTION

    archive = archive_of(source, container.head)
    for record in archive.found.values() if archive is not None else ():
        if not record.directory:
            name = record.name.encode("utf-8", "backslashreplace").decode()
            locked = bool(record.flags & (ENCRYPTED | STRONG_ENCRYPTION))
            yield Inside(name, record.compressed, lambda record=record: _record(source, record), locked)  # type: ignore[misc]  # mypy cannot infer lambdas with defaults


def _record(source: Source, record: Record) -> Iterator[bytes]:
    """The bytes of a record, held against its checksum at the end. Raises DamagedError."""
    import zlib

    from ckptdoctor.formats.torch.zip.data import check_readable, chunks

    check_readable(record)
    checksum = 0
    for chunk in chunks(source, record):
        checksum = zlib.crc32(chunk, checksum)
        yield chunk
    if record.crc and checksum != record.crc:
        raise DamagedError(f"“{shown(record.name)}” does not fit its checksum, so some of its bytes have changed.")


def _in_tar(source: Source) -> Iterator[Inside]:
    from ckptdoctor.formats.recognise.tars import walk

    for entry in walk(source):
        if entry.regular:
            name = entry.name.removeprefix("./")
            place = entry.offset, entry.size
            yield Inside(name, entry.size, lambda place=place: _range(source, *place), offset=entry.offset)  # type: ignore[misc]  # mypy cannot infer lambdas with defaults


def _range(source: Source, offset: int, size: int) -> Iterator[bytes]:
    if offset + size > source.size:
        raise TruncatedError(f"The archive ends at byte {source.size:,} and should go on to {offset + size:,}.")
    if isinstance(source, Thin):
        yield from _part(source.pieces(), offset, offset + size)
        return
    for at in range(offset, offset + size, _CHUNK):
        yield source.read(at, min(_CHUNK, offset + size - at))


def _part(pieces: Iterator[bytes], start: int, stop: int) -> Iterator[bytes]:
    """The bytes of a stream from ``start`` to ``stop``."""
    at = 0
    for piece in pieces:
        part = piece[max(0, start - at) : max(0, stop - at)]
        at += len(piece)
        if part:
            yield part
        if at >= stop:
            return
