"""Unpacks one file into the temporary folder, unless it is no checkpoint, a bomb, or too large for the disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import chain

from ckptdoctor.checkpoint import Source
from ckptdoctor.checkpoint.descriptors import READING
from ckptdoctor.checkpoint.progress import phase
from ckptdoctor.errors import CkptDoctorError, HostileError
from ckptdoctor.formats.packed import scratch
from ckptdoctor.formats.packed.inside import Inside
from ckptdoctor.formats.packed.passing import Passing
from ckptdoctor.formats.packed.sieves import Sieve, sieve_of
from ckptdoctor.formats.packed.writer import Writer, written
from ckptdoctor.formats.recognise.pickled import may_begin
from ckptdoctor.formats.recognise.tars import is_tar
from ckptdoctor.writing.attributes import restore

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


def _like_the_original(source: Source, handle: int) -> None:
    """Give it the owner and permissions of the packed file, which a repaired copy takes over in its turn."""
    with contextlib.suppress(OSError):
        original = os.open(source.file, READING)
        try:
            restore(original, handle)
        finally:
            os.close(original)
