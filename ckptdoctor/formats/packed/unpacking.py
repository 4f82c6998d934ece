"""Lists what is packed in a file, and unpacks one of it into the temporary folder.

What is not a checkpoint, a bomb, or too large for the disk is not unpacked.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from ckptdoctor.checkpoint import Container, Source
from ckptdoctor.checkpoint.progress import phase
from ckptdoctor.checkpoint.source import READING
from ckptdoctor.errors import CkptDoctorError, DamagedError, HostileError, TruncatedError
from ckptdoctor.formats.packed import scratch
from ckptdoctor.formats.packed.passing import Passing
from ckptdoctor.formats.packed.scratch import Writer, written
from ckptdoctor.formats.packed.sieves import Sieve, sieve_of
from ckptdoctor.formats.packed.streams import STREAMS, decompressed
from ckptdoctor.formats.packed.thin import Thin
from ckptdoctor.formats.recognise.members import is_junk, may_be_weights
from ckptdoctor.formats.recognise.pickled import may_begin
from ckptdoctor.formats.recognise.tars import is_tar, walk
from ckptdoctor.formats.torch.zip.records import Record, shown
from ckptdoctor.noun import noun
from ckptdoctor.writing.system import restore

_TAR = "tar archive"

# the parts of a checkpoint that was unpacked and packed again, one of which ("data.pkl") looks like one itself
_PARTS = frozenset({"data.pkl", "byteorder", "version"})

_CHUNK = 1 << 20


@noun
class Inside:
    """One file in a packed one. ``name`` is "" where it has none; ``packed`` is how many bytes it takes there.

    ``offset`` is where it is, where it is there as it is: those bytes are all of it.
    """

    name: str
    packed: int
    chunks: Callable[[], Iterator[bytes]]
    locked: bool = False  # only a password opens it
    offset: int | None = None


def insides(source: Source, container: Container) -> list[Inside]:
    """Return the files in a packed one that may be checkpoints, by their names.

    All are, where there is only one.
    """
    if container.format in STREAMS:
        return [Inside("", source.size, lambda: decompressed(source, container.format))]
    found = list(_in_tar(source) if container.format == _TAR else _zipped(source, container))
    found = [each for each in found if not is_junk(each.name)]
    last = {each.name.rpartition("/")[2] for each in found}
    if "data.pkl" in last and len(last & _PARTS) > 1:
        return []
    return found if len(found) == 1 else [each for each in found if may_be_weights(each.name)]


def chosen(candidates: Sequence[Inside], name: str | None) -> Inside | None:
    """Return the one that is called so, or the only one there is."""
    if name is not None:
        candidates = [each for each in candidates if each.name == name]
    return candidates[0] if len(candidates) == 1 else None


def _zipped(source: Source, container: Container) -> Iterator[Inside]:
    from ckptdoctor.formats.torch.zip.structs import ENCRYPTED, STRONG_ENCRYPTION
    from ckptdoctor.formats.zip_archives import archive_of

    archive = archive_of(source, container.head)
    for record in archive.found.values() if archive is not None else ():
        if not record.directory:
            name = record.name.encode("utf-8", "backslashreplace").decode()
            locked = bool(record.flags & (ENCRYPTED | STRONG_ENCRYPTION))
            yield Inside(name, record.compressed, lambda record=record: _record(source, record), locked)  # type: ignore[misc]  # mypy cannot infer lambdas with defaults


def _record(source: Source, record: Record) -> Iterator[bytes]:
    """Yield the bytes of a record, and compare its checksum at the end. Raises DamagedError."""
    import zlib

    from ckptdoctor.formats.torch.zip.local_headers import check_readable, chunks

    check_readable(record)
    checksum = 0
    for chunk in chunks(source, record):
        checksum = zlib.crc32(chunk, checksum)
        yield chunk
    if record.crc and checksum != record.crc:
        raise DamagedError(f'"{shown(record.name)}" does not match its checksum, so some of its bytes have changed.')


def _in_tar(source: Source) -> Iterator[Inside]:
    for entry in walk(source):
        if entry.regular:
            name = entry.name.removeprefix("./")
            place = entry.offset, entry.size
            yield Inside(name, entry.size, lambda place=place: _range(source, *place), offset=entry.offset)  # type: ignore[misc]  # mypy cannot infer lambdas with defaults


def _range(source: Source, offset: int, size: int) -> Iterator[bytes]:
    if offset + size > source.size:
        raise TruncatedError(f"The archive ends at byte {source.size:,} but should continue to {offset + size:,}.")
    if isinstance(source, Thin):
        yield from _part(source.pieces(), offset, offset + size)
        return
    for at in range(offset, offset + size, _CHUNK):
        yield source.read(at, min(_CHUNK, offset + size - at))


def _part(pieces: Iterator[bytes], start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes of a stream from ``start`` to ``stop``."""
    at = 0
    for piece in pieces:
        part = piece[max(0, start - at) : max(0, stop - at)]
        at += len(piece)
        if part:
            yield part
        if at >= stop:
            return


# no weights are packed to less than a two-thousandth; zeros are
_MOST_RATIO = 2_000
_BEYOND = 1 << 30

HEAD = 512  # how much tells whether it may be a checkpoint: a header of a tar archive

# what checkpoints, and what they may be packed in once more, begin with
_BEGINNINGS = (
    *(b"PK\x03\x04", b"\x93NUMPY", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"),
    b"(",  # a pickle of protocol 0 or 1
)


def unpacked(source: Source, inside: Inside, most: int, headers: bool = False) -> str | None:
    """Return the path of the unpacked file.

    It is None where its first bytes are those of something else than a checkpoint.

    ``most`` is how many packed bytes those that it unpacks to are compared with. With ``headers``, and of an archive of
    other files, only parts are in the file (``scratch.holes``).
    Raises DamagedError for what cannot be unpacked (HostileError: a bomb) and RefusedError where there is no room.
    """
    identity = source.identity
    key = (source.file, inside.name) if identity is None else (identity, inside.name)
    path = scratch.known(key)
    if path is not None:
        return path
    pieces = within_bounds(inside.chunks(), most)
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= HEAD:
            break
    if not may_be_checkpoint(head):
        return None
    sieve = sieve_of(head, headers)
    with scratch.new_file(key) as (path, handle):
        if sieve is None:
            written(chain([head], pieces), handle)
        else:
            scratch.lacks(path, _sifted(sieve, chain([head], pieces), handle, source.path, inside))
        _like_the_original(source, handle)
    return path


def _sifted(sieve: Sieve, pieces: Iterator[bytes], handle: int, path: str, inside: Inside) -> scratch.Places:
    """Write what the sieve keeps; return where the rest is."""
    with phase("unpacking", 0) as work:  # nobody knows yet how much it will be
        writer = Writer(handle, work)
        passing = Passing(path, pieces, writer, None if inside.offset is None else inside.packed)
        try:
            whole = sieve(passing)
        except CkptDoctorError:  # who reads it says what is wrong with it
            whole = True
        passing.end(whole)
        writer.end()
    return tuple(writer.holes)


def within_bounds(pieces: Iterator[bytes], packed: int) -> Iterator[bytes]:
    """Yield the pieces that so many bytes unpack to. Raises HostileError where these are more than weights can be."""
    done = 0
    for piece in pieces:
        done += len(piece)
        if done > max(_BEYOND, _MOST_RATIO * packed):
            raise HostileError(
                f"Its {packed:,} bytes unpack to more than {_BEYOND:,}, over {_MOST_RATIO:,} times as many: "
                "it is made to fill disks, and was not unpacked."
            )
        yield piece


def may_be_checkpoint(head: bytes) -> bool:
    """Return whether a file that begins so is worth unpacking."""
    return head.startswith(_BEGINNINGS) or head[8:9] == b"{" or is_tar(head) or may_begin(head)


def _like_the_original(source: Source, handle: int) -> None:
    """Give it the owner and permissions of the packed file, which a repaired copy takes over in its turn."""
    with contextlib.suppress(OSError):
        original = os.open(source.file, READING)
        try:
            restore(original, handle)
        finally:
            os.close(original)
