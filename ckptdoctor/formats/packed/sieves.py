"""Keeps what is needed of a file that passes by to read its headers: of a tar archive, of safetensors, of torch.

Whatever is kept too little is found missing, and then all is unpacked (``thin``): what is said never depends on it.
"""

from __future__ import annotations

from collections.abc import Callable

from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.formats.packed.passing import Passing
from ckptdoctor.formats.recognise.tars import BLOCK, MOST, TORCH_MEMBERS, Entry, entry_of, is_tar
from ckptdoctor.formats.safetensors.signature import LENGTH_BYTES, MAX_HEADER_BYTES
from ckptdoctor.formats.torch.legacy.read import is_legacy

# by which files are recognised (``formats.HEAD_BYTES``)
_HEAD = 4096

# what lies in an archive of torch but for storages
_BESIDE = (TORCH_MEMBERS - {"storages"}) | {"sys_info"}
_MOST_BESIDE = 64 << 20

_PROTOCOLS = range(2, 6)

# keeps what it wants and settles nothing behind that; whether the rest is wanted, too
Sieve = Callable[[Passing], bool]


def sieve_of(head: bytes, headers: bool) -> Sieve | None:
    """What a file that begins so is reduced to; None where all of it is wanted.

    An archive that holds others is always reduced to its list; ``headers``: so is what has headers that stand alone.
    """
    if is_tar(head):
        return _tar
    if not headers:
        return None
    if head[LENGTH_BYTES : LENGTH_BYTES + 1] == b"{":
        return _safetensors
    if is_legacy(head):
        return _legacy
    return _pickle if len(head) > 2 and head[0] == 0x80 and head[1] in _PROTOCOLS else None


def _tar(passing: Passing) -> bool:
    """The headers of the members; of an archive of torch all but the values."""
    passing.want(_HEAD)
    at = 0
    for _ in range(MOST):
        block = passing.peek(at, BLOCK)
        passing.want(at + len(block))  # also of what is none, by which the list ends
        entry = entry_of(block, at) if len(block) == BLOCK else None
        if entry is None:
            break
        _member(passing, entry)
        at = entry.next
    return False


def _member(passing: Passing, entry: Entry) -> None:
    name = entry.name.removeprefix("./")
    if not entry.regular:
        return
    if name in _BESIDE and entry.size <= _MOST_BESIDE:
        passing.keep(entry.offset + entry.size)
    elif name == "storages":
        from ckptdoctor.formats.recognise.tars import Member
        from ckptdoctor.formats.torch.tar.tables import Cursor, Tables

        try:
            Tables(passing).take(Cursor(passing, name, Member(entry.offset, entry.size)))
        except CkptDoctorError:  # who reads the archive says so
            passing.keep(min(entry.offset + entry.size, passing.at + _MOST_BESIDE))


def _safetensors(passing: Passing) -> bool:
    """The header. What is behind it is not even passed over where the size is known."""
    length = int.from_bytes(passing.read(0, LENGTH_BYTES), "little")
    if length > MAX_HEADER_BYTES:
        return True
    passing.keep(max(_HEAD, LENGTH_BYTES + length))
    return False


def _legacy(passing: Passing) -> bool:
    """The pickles and the counts of the storages, and what follows the last one."""
    from ckptdoctor.formats.torch.legacy.read import LegacyStorages, read_stream

    stream = read_stream(passing)
    passing.drop(LegacyStorages(passing, stream).end)
    return True


def _pickle(passing: Passing) -> bool:
    """All but the values of arrays."""
    from ckptdoctor.formats.packed.pickle_sieve import keep_opcodes

    keep_opcodes(passing)
    return True
