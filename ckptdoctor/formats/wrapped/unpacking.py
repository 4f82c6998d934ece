"""Unpacks one file into the temporary folder, unless it is no checkpoint, a bomb, or too large for the disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from itertools import chain
from time import monotonic

from ckptdoctor.checkpoint import Source
from ckptdoctor.checkpoint.descriptors import READING
from ckptdoctor.errors import HostileError, RefusedError
from ckptdoctor.formats.recognise.tars import is_tar
from ckptdoctor.formats.wrapped import scratch
from ckptdoctor.formats.wrapped.inside import Inside
from ckptdoctor.writing.attributes import restore

# a tenth of what is free stays free
_SHARE = 0.9
# no weights are packed to less than a two-thousandth; zeros are
_MOST_RATIO = 2_000
_BEYOND = 1 << 30

_HEAD = 512  # how much tells whether it may be a checkpoint: a header of a tar archive
_ZEROS = bytes(1 << 20)  # no piece of them is longer
_LOOK = 64 << 20  # so often the free space is looked at
_SECONDS = 0.5  # after which, and in which steps, progress is told

# what checkpoints, and what they may be packed in once more, begin with
_BEGINNINGS = (
    *(b"PK\x03\x04", b"\x80", b"\x93NUMPY", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"),
    b"(",  # a pickle of protocol 0 or 1
)


def unpacked(source: Source, inside: Inside, packed: int | None = None) -> str | None:
    """The path of the unpacked file; None where its first bytes are those of something else than a checkpoint.

    ``packed`` is how many bytes the outermost file has, where that is another: those that it unpacks to are limited.
    Raises DamagedError for what cannot be unpacked (HostileError: a bomb) and RefusedError where there is no room.
    """
    identity = source.identity
    key = (source.file, inside.name) if identity is None else (identity, inside.name)
    path = scratch.known(key)
    if path is not None:
        return path
    pieces = inside.chunks()
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= _HEAD:
            break
    if not _may_be_checkpoint(head):
        return None
    with scratch.new_file(key) as (path, handle):
        _write(chain([head], pieces), handle, inside.packed if packed is None else min(packed, inside.packed))
        _like_the_original(source, handle)
    return path


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


def _may_be_checkpoint(head: bytes) -> bool:
    return head.startswith(_BEGINNINGS) or head[8:9] == b"{" or is_tar(head)


def _write(pieces: Iterator[bytes], handle: int, packed: int) -> None:
    """Write the pieces; those of zeros alone become holes, which take no room on most disks."""
    room = int(shutil.disk_usage(scratch.folder()).free * _SHARE)
    done, taken, looked = 0, 0, 0
    with _told() as tell:
        for piece in within_bounds(pieces, packed):
            done += len(piece)
            hole = _ZEROS.startswith(piece)
            taken += 0 if hole else len(piece)
            if taken > room:
                raise RefusedError(
                    f"Unpacking stopped after {done:,} bytes, to leave some room on the disk of {scratch.folder()}: "
                    "unpack it yourself, or let TMPDIR name a folder with more room."
                )
            view = memoryview(b"" if hole else piece)
            try:
                while view:
                    view = view[os.write(handle, view) :]
                if hole:
                    os.ftruncate(handle, done)
                    os.lseek(handle, done, os.SEEK_SET)
            except OSError as error:
                raise RefusedError(
                    f"Unpacking stopped in {scratch.folder()}: {error.strerror}. Unpack it yourself, or let TMPDIR "
                    "name a folder with more room."
                ) from error
            tell(done)
            if taken - looked >= _LOOK:  # others write to the same disk
                room = min(room, taken + int(shutil.disk_usage(scratch.folder()).free * _SHARE))
                looked = taken


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
