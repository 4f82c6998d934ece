"""Defines the file that parity is kept in: a table, the blocks, and the table again, each with its checksum.

It is documented in ``docs/seals.md``. Nothing else is needed to rebuild a file: either table has the SHA-256 of the
whole file and a checksum of each block. One that is read may be anybody's, so each field is checked before it is used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, suppress
from hashlib import sha256
from typing import Any

from ckptdoctor.checkpoint import FileSource
from ckptdoctor.errors import DamagedError, TruncatedError
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex
from ckptdoctor.sealing.parity.layout import LARGEST, MOST, Layout
from ckptdoctor.shell import quote

SUFFIX = ".parity"
KIND = b'{"format":"ckptdoctor parity"'
_FORMAT, _VERSION = "ckptdoctor parity", 1
SUM = 16  # bytes of the SHA-256 of a block that are kept
_LONGEST_HEAD = 1000  # bytes of the first line
_SHA = 32  # bytes of the checksum of a table
_END = b"ckptdoctor parity\n"
_FOOT = 8 + len(_END)  # bytes behind the second table: its length, and what they are known by
_DIGEST = regex(r"[0-9a-f]{64}")


@noun
class Table:
    """What parity was made of: ``digest`` is the SHA-256 of the file, and ``sums`` those of all blocks in a row.

    Blocks of the file come first, then those of parity. ``percent`` is what was asked for.
    """

    layout: Layout
    digest: str
    percent: float
    sums: bytes

    def sum(self, at: int) -> bytes:
        """Return the checksum of block ``at``; those of parity are counted behind those of the file."""
        return self.sums[at * SUM : (at + 1) * SUM]


@noun
class ParityFile:
    """A parity file that was read. ``start`` is where its blocks are, ``table_sum`` the SHA-256 of its table.

    ``complete`` says that both tables are intact and that it is as long as it must be.
    """

    path: str
    table: Table
    start: int
    table_sum: str
    complete: bool

    def place(self, parity: int) -> int:
        """Return where a block of parity is."""
        return self.start + parity * self.table.layout.block


def sum_of(data: bytes | memoryview) -> bytes:
    """Return the checksum of a block."""
    return sha256(data).digest()[:SUM]


# ---- written


def head_of(layout: Layout, digest: str, percent: float) -> bytes:
    """Return the first line of a table."""
    head = {
        "format": _FORMAT,
        "version": _VERSION,
        "algorithm": "sha256",
        "size": layout.size,
        "sha256": digest,
        "percent": percent,
        "block": layout.block,
        "data": layout.data,
        "parity": layout.parity,
        "groups": layout.groups,
    }
    return json.dumps(head, separators=(",", ":")).encode() + b"\n"


def length_of(head: bytes, layout: Layout) -> int:
    """Return how long the table is that begins with this line."""
    return len(head) + (layout.blocks + layout.parities) * SUM + _SHA


def encoded(table: Table) -> bytes:
    """Return the table as it is in the file."""
    body = head_of(table.layout, table.digest, table.percent) + table.sums
    return body + sha256(body).digest()


def foot_of(length: int) -> bytes:
    """Return what is behind the second table, which is so long."""
    return length.to_bytes(8, "little") + _END


# ---- read


def is_parity(path: str) -> bool:
    """Return whether a file is one of parity, as far as its first bytes or its last show."""
    try:
        with open(path, "rb") as file:
            if file.read(len(KIND)) == KIND:
                return True
            file.seek(-len(_END), os.SEEK_END)
            return file.read() == _END
    except OSError:
        return False


def read_parity(path: str) -> ParityFile:
    """Read a table of a parity file: the first, or where that is damaged the second.

    Raises UnreadableError where there is none, and DamagedError where neither is intact.
    """
    with closing(FileSource(path)) as source:
        found: list[bytes] = []
        why = "it has neither of its two tables"
        for begin in (0, _second(source)):
            if begin is None:
                continue
            try:
                found.append(_read(source, begin))
            except (ValueError, TruncatedError, RecursionError, OSError) as error:
                why = str(error)
        if not found:
            raise DamagedError(
                f"{path} is not an intact parity file: {why}. Nothing can be rebuilt from it; a new one can be made of "
                f"an intact file: ckptdoctor seal {quote(path.removesuffix(SUFFIX))} --parity 1% --force"
            )
        raw = found[0]
        table = _table(raw)
        size = 2 * len(raw) + table.layout.parities * table.layout.block + _FOOT
        complete = len(found) == 2 and found[0] == found[1] and source.size == size
        return ParityFile(path, table, len(raw), sha256(raw).hexdigest(), complete)


def _second(source: FileSource) -> int | None:
    """Return where the second table begins, as far as the end of the file shows."""
    with suppress(TruncatedError, OSError):
        foot = source.read(source.size - _FOOT, _FOOT)
        length = int.from_bytes(foot[:8], "little")
        if foot[8:] == _END and length + _FOOT <= source.size:
            return source.size - _FOOT - length
    return None


def _read(source: FileSource, begin: int) -> bytes:
    head = source.read(begin, min(_LONGEST_HEAD, source.size - begin))
    line, newline, _ = head.partition(b"\n")
    if not head.startswith(KIND) or not newline:
        raise ValueError("its first line is not that of a table")
    layout = _layout(json.loads(line))
    raw = source.read(begin, length_of(line + newline, layout))
    if sha256(raw[:-_SHA]).digest() != raw[-_SHA:]:
        raise ValueError("its tables do not match their checksums")
    return raw


def _table(raw: bytes) -> Table:
    line = raw.index(b"\n") + 1
    fields = json.loads(raw[:line])
    return Table(_layout(fields), fields["sha256"], float(fields["percent"]), raw[line:-_SHA])


def _layout(fields: Any) -> Layout:
    """Return the layout that a table states. Raises ValueError for one that is not possible."""
    if not isinstance(fields, dict) or (fields.get("version"), fields.get("algorithm")) != (_VERSION, "sha256"):
        raise ValueError("it was written by a later version of ckptdoctor")
    size, block, data, parity, groups = _numbers(fields)
    layout = Layout(size, block, data, parity, groups)
    share = fields.get("percent")
    if (
        block > LARGEST
        or data + parity > MOST
        or -(-layout.blocks // groups) != data
        or not isinstance(share, (int, float))
        or not isinstance(fields.get("sha256"), str)
        or not _DIGEST.fullmatch(fields["sha256"])
    ):
        raise ValueError("its table contradicts itself")
    return layout


def _numbers(fields: dict[str, Any]) -> Iterator[int]:
    for name in ("size", "block", "data", "parity", "groups"):
        value = fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 63:
            raise ValueError(f'"{name}" of its table is not a possible number')
        yield value
