"""Unpacks one file into the temporary folder, unless it is no checkpoint, a bomb, or too large for the disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from time import monotonic

from ckptdoctor.checkpoint import Source
from ckptdoctor.checkpoint.descriptors import READING
from ckptdoctor.errors import CkptDoctorError, HostileError, RefusedError
from ckptdoctor.formats.recognise.pickled import may_begin
from ckptdoctor.formats.recognise.tars import is_tar
from ckptdoctor.formats.wrapped import scratch
from ckptdoctor.formats.wrapped.inside import Inside
from ckptdoctor.formats.wrapped.passing import Passing
from ckptdoctor.formats.wrapped.sieves import Sieve, sieve_of
from ckptdoctor.writing.attributes import restore

# a tenth of what is free stays free
_SHARE = 0.9
# no weights are packed to less than a two-thousandth; zeros are
_MOST_RATIO = 2_000
_BEYOND = 1 << 30

HEAD = 512  # how much tells whether it may be a checkpoint: a header of a tar archive
_ZEROS = bytes(1 << 20)  # no piece of them is longer
_LOOK = 64 << 20  # so often the free space is looked at
_SECONDS = 0.5  # after which, and in which steps, progress is told

# what checkpoints, and what they may be packed in once more, begin with
_BEGINNINGS = (
    *(b"PK\x03\x04", b"\x93NUMPY", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"),
    b"(",  # a pickle of protocol 0 or 1
)


def unpacked(source: Source, inside: Inside, most: int, headers: bool = False) -> str | None:
    """The path of the unpacked file; None where its first bytes are those of something else than a checkpoint.

    ``most`` is how many packed bytes those that it unpacks to are held against. With ``headers``, and of an archive of
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
    """Write what the sieve keeps. Where the rest lies."""
    with _told() as tell:
        writer = Writer(handle, tell)
        passing = Passing(path, pieces, writer, None if inside.offset is None else inside.packed)
        try:
            whole = sieve(passing)
        except CkptDoctorError:  # who reads it says what is wrong with it
            whole = True
        passing.end(whole)
        writer.end()
    return tuple(writer.holes)


def written(pieces: Iterator[bytes], handle: int) -> int:
    """Write all the pieces, and say how many bytes they are."""
    with _told() as tell:
        writer = Writer(handle, tell)
        for piece in pieces:
            writer.write(piece)
        writer.end()
    return writer.done


def within_bounds(pieces: Iterator[bytes], packed: int) -> Iterator[bytes]:
    """The pieces that so many bytes unpack to. Raises HostileError where these are more than weights can be."""
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
    """Whether a file that begins so is worth unpacking."""
    return head.startswith(_BEGINNINGS) or head[8:9] == b"{" or is_tar(head) or may_begin(head)


class Writer:
    """Writes a file from its beginning on: pieces of zeros alone become holes, which take no room on most disks.

    So does what is skipped; ``holes`` are where that was. Raises RefusedError where there is no room.
    """

    def __init__(self, handle: int, tell: Callable[[int], None]) -> None:
        self.done = 0
        self.holes: list[tuple[int, int]] = []
        self._handle = handle
        self._tell = tell
        self._room = int(shutil.disk_usage(scratch.folder()).free * _SHARE)
        self._taken = self._looked = 0

    def write(self, piece: bytes) -> None:
        """The next bytes."""
        hole = _ZEROS.startswith(piece)
        self._taken += 0 if hole else len(piece)
        if self._taken > self._room:
            raise RefusedError(
                f"Unpacking stopped after {self.done + len(piece):,} bytes, to leave some room on the disk of "
                f"{scratch.folder()}: unpack it yourself, or let TMPDIR name a folder with more room."
            )
        view = memoryview(b"" if hole else piece)
        with _refused():
            while view:
                view = view[os.write(self._handle, view) :]
        self._go_on(len(piece), hole)
        if self._taken - self._looked >= _LOOK:  # others write to the same disk
            free = shutil.disk_usage(scratch.folder()).free
            self._room = min(self._room, self._taken + int(free * _SHARE))
            self._looked = self._taken

    def skip(self, length: int) -> None:
        """Leave so many bytes out."""
        if not length:
            return
        begin, end = self.done, self.done + length
        if self.holes and self.holes[-1][1] == begin:
            begin = self.holes.pop()[0]
        self.holes.append((begin, end))
        self._go_on(length, True)

    def end(self) -> None:
        """Nothing comes any more."""
        with _refused():
            os.ftruncate(self._handle, self.done)

    def _go_on(self, length: int, hole: bool) -> None:
        self.done += length
        if hole:
            with _refused():
                os.lseek(self._handle, self.done, os.SEEK_SET)
        self._tell(self.done)


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RefusedError(
            f"Unpacking stopped in {scratch.folder()}: {error.strerror}. Unpack it yourself, or let TMPDIR "
            "name a folder with more room."
        ) from error


def _like_the_original(source: Source, handle: int) -> None:
    """Give it the owner and permissions of the packed file, which a repaired copy takes over in its turn."""
    with contextlib.suppress(OSError):
        original = os.open(source.file, READING)
        try:
            restore(original, handle)
        finally:
            os.close(original)


@contextlib.contextmanager
def _told() -> Iterator[_Teller]:
    teller = _Teller()
    try:
        yield teller
    finally:
        teller.end()


class _Teller:
    """Tells on a terminal how far unpacking has come, where it takes long enough to wonder."""

    def __init__(self) -> None:
        self._due = monotonic() + _SECONDS if sys.stderr is not None and sys.stderr.isatty() else float("inf")
        self._told = False

    def __call__(self, done: int) -> None:
        if monotonic() >= self._due:
            sys.stderr.write(f"\runpacking: {done / 1e6:,.0f} MB ")
            sys.stderr.flush()
            self._told, self._due = True, monotonic() + _SECONDS

    def end(self) -> None:
        """Take the line away."""
        if self._told:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
