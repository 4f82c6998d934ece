"""Tar archives: torch's own from before 0.1.10, and others that may hold a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ckptdoctor.checkpoint import Source
from ckptdoctor.formats.recognise.found import Found
from ckptdoctor.formats.recognise.members import checkpoints_in

_BLOCK = 512

# members that are looked at, at most
_MOST = 1000

# what torch wrote before 0.1.10 (torch.serialization._legacy_load)
TORCH_MEMBERS = frozenset({"storages", "tensors", "pickle"})

# the kinds of members that are files: "0", and a zero byte in the oldest archives
_REGULAR = b"0\0"


class Entry(NamedTuple):
    """One member: its data are ``size`` bytes at ``offset``, if the archive is whole."""

    name: str
    offset: int
    size: int
    regular: bool


def recognise_tar(source: Source, head: bytes) -> Found | None:
    """A tar archive that is none of torch's own."""
    if not is_tar(head):
        return None
    names = [entry.name.removeprefix("./") for entry in walk(source)]
    return Found("tar archive", checkpoints_in(names, "tar -xf FILE"))


def is_tar(head: bytes) -> bool:
    """Whether a file that begins so is a tar archive, by its first header's checksum: the oldest have no other mark."""
    return _is_header(head[:_BLOCK])


def walk(source: Source) -> Iterator[Entry]:
    """The members in file order, up to the end of the archive or what is no member."""
    at = 0
    for _ in range(_MOST):
        if at + _BLOCK > source.size:
            return
        block = source.read(at, _BLOCK)
        size = _octal(block[124:136])
        if size is None or not _is_header(block):
            return
        name = block[:100].split(b"\0")[0].decode("utf-8", "replace")
        yield Entry(name, at + _BLOCK, size, block[156] in _REGULAR)
        at += _BLOCK + -(-size // _BLOCK) * _BLOCK


def _is_header(block: bytes) -> bool:
    if len(block) < _BLOCK or not block[0]:
        return False
    stated = _octal(block[148:156])
    return stated is not None and stated == sum(block[:148]) + 8 * 0x20 + sum(block[156:])


def _octal(field: bytes) -> int | None:
    digits = field.strip(b" \0")
    return int(digits, 8) if digits and not digits.strip(b"01234567") else None
