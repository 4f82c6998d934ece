"""Recognises tar archives: torch's own from before 0.1.10, and others that may hold a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ckptdoctor.checkpoint import Source
from ckptdoctor.formats.recognise.magic import Found
from ckptdoctor.formats.recognise.members import checkpoints_in

BLOCK = 512  # headers and data begin at multiples of it

# members that are looked at, at most
MOST = 1000

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

    @property
    def next(self) -> int:
        """Where the header of the next member begins."""
        return self.offset + -(-self.size // BLOCK) * BLOCK


def recognise_tar(source: Source, head: bytes) -> Found | None:
    """Return a tar archive that is none of torch's own."""
    if not is_tar(head):
        return None
    names = [entry.name.removeprefix("./") for entry in walk(source)]
    return Found("tar archive", checkpoints_in(names, "tar -xf FILE"))


def is_tar(head: bytes) -> bool:
    """Return whether a file that begins so is a tar archive, by its first header's checksum.

    The oldest have no other mark.
    """
    return _is_header(head[:BLOCK])


def walk(source: Source) -> Iterator[Entry]:
    """Yield the members in file order, up to the end of the archive or anything that is not a member."""
    at = 0
    for _ in range(MOST):
        entry = entry_of(source.read(at, BLOCK), at) if at + BLOCK <= source.size else None
        if entry is None:
            return
        yield entry
        at = entry.next


def entry_of(block: bytes, at: int) -> Entry | None:
    """Return the member whose header is this block at byte ``at``, or None where it is not a header."""
    size = _octal(block[124:136])
    if size is None or not _is_header(block):
        return None
    name = block[:100].split(b"\0")[0].decode("utf-8", "replace")
    return Entry(name, at + BLOCK, size, block[156] in _REGULAR)


def _is_header(block: bytes) -> bool:
    if len(block) < BLOCK or not block[0]:
        return False
    stated = _octal(block[148:156])
    return stated is not None and stated == sum(block[:148]) + 8 * 0x20 + sum(block[156:])


def _octal(field: bytes) -> int | None:
    digits = field.strip(b" \0")
    return int(digits, 8) if digits and not digits.strip(b"01234567") else None


class Member(NamedTuple):
    """``size`` bytes at ``offset`` of the file, as the archive says; fewer may be there."""

    offset: int
    size: int


def members_of(source: Source) -> dict[str, Member]:
    """Return the regular files of the archive; of several with one name the last, as tarfile does."""
    return {entry.name.removeprefix("./"): Member(entry.offset, entry.size) for entry in walk(source) if entry.regular}
