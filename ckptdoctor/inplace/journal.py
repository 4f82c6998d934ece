"""Keeps what a change in place overwrites: old bytes, what new ones look like, and which file it was.

A journal is one file next to the one that it is about (for a folder: in it). It is complete, and on the disk with its
name, before the first byte changes. Its name says how far the change is: ``.NAME.ckptdoctor-hot`` until the change is
complete, ``.NAME.ckptdoctor-undo-0001`` from then on. The file itself says what it holds, in the order of this
module's ``encode``; a SHA-256 at its end covers all of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from hashlib import blake2b, sha256
from typing import Any

from ckptdoctor.errors import DamagedError
from ckptdoctor.inplace.change import SECTOR, FileChange
from ckptdoctor.inplace.disk import Disk
from ckptdoctor.inplace.names import LENGTH_BYTES, MAGIC, place
from ckptdoctor.noun import noun

_DIGEST = 8
# what a journal of a folder may be about: shards and their index. It may come from a stranger, with the folder
_IN_FOLDERS = (".safetensors", ".bin", ".pt", ".pth", ".json")
# unchanged bytes of a file that are looked at again before anything is restored
_SAMPLES, _SAMPLED = 16, 4096


@noun
class Kept:
    """Bytes of the old file that a change overwrites, and a digest of what is there afterwards, by sectors."""

    at: int
    old: bytes
    new: tuple[bytes, ...]


@noun
class Sample:
    """A digest of bytes of the old file that no change touches."""

    at: int
    length: int
    digest: bytes


@noun
class FileRecord:
    """What a journal knows of one file: before the change, and after it.

    ``runs`` are where the old file had data, which tells how far a shift got; they are kept only where there is one.
    """

    name: str
    device: int
    inode: int
    old_size: int
    old_time: int
    new_size: int
    new_time: int
    inserted: int
    runs: tuple[tuple[int, int], ...]
    kept: tuple[Kept, ...]
    samples: tuple[Sample, ...]


@noun
class Journal:
    """Everything that takes a change back: for people, when it was made and what for; and a record for each file."""

    number: int
    made: int
    told: tuple[str, ...]
    files: tuple[FileRecord, ...]


def digest(data: bytes) -> bytes:
    """Return a short digest of a sector or a sample: it tells apart what chance and other programs write."""
    return blake2b(data, digest_size=_DIGEST).digest()


def sectors(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the range in pieces that a device writes whole or not at all."""
    while begin < end:
        stop = min(end, begin - begin % SECTOR + SECTOR)
        yield begin, stop
        begin = stop


def record(disk: Disk, fd: int, change: FileChange, old_time: int, new_time: int) -> FileRecord:
    """Return what must be known of the open file to take the change back; ``old_time`` is when it last changed."""
    status = disk.status(fd)
    after = _After(change)
    kept = []
    for begin, end in change.overwritten:
        old = disk.pread(fd, end - begin, begin)
        new = [digest(after(start + change.inserted, stop + change.inserted)) for start, stop in sectors(begin, end)]
        kept.append(Kept(begin, old, tuple(new)))
    samples = []
    for begin, end in _untouched(change):
        samples.append(Sample(begin, end - begin, digest(disk.pread(fd, end - begin, begin))))
    return FileRecord(
        change.name,
        status.device,
        status.inode,
        change.old_size,
        old_time,
        change.new_size,
        new_time,
        change.inserted,
        tuple(disk.runs(fd)) if change.inserted else (),
        tuple(kept),
        tuple(samples),
    )


class _After:
    """Gives the bytes that a change writes: all of those that replace old ones are among them."""

    def __init__(self, change: FileChange) -> None:
        self._writes = change.writes

    def __call__(self, begin: int, end: int) -> bytes:
        """Return the new bytes in this range, without those behind the new end of the file."""
        found = b""
        for each in self._writes:
            if each.at < end and begin < each.end:
                found += each.data[max(begin - each.at, 0) : end - each.at]
        return found


def _untouched(change: FileChange) -> Iterator[tuple[int, int]]:
    """Yield ranges of the old file that stay, spread over all of it."""
    gaps, at = [], 0
    for begin, end in [*sorted(change.overwritten), (change.old_size, change.old_size)]:
        if at < begin:
            gaps.append((at, begin))
        at = max(at, end)
    total = sum([end - begin for begin, end in gaps])
    taken: set[int] = set()
    for number in range(_SAMPLES):
        left = total * number // _SAMPLES
        for begin, end in gaps:
            if left < end - begin:
                start = begin + left
                if start not in taken:
                    taken.add(start)
                    yield start, min(start + _SAMPLED, end)
                break
            left -= end - begin


# ---- as bytes


def encode(journal: Journal) -> bytes:
    """Return the file: a line, the length of a JSON text, the text, the old bytes one behind the other, a SHA-256."""
    said = {
        "number": journal.number,
        "made": journal.made,
        "told": list(journal.told),
        "files": [_said(each) for each in journal.files],
    }
    text = json.dumps(said).encode()
    old = b"".join([kept.old for each in journal.files for kept in each.kept])
    body = MAGIC + len(text).to_bytes(LENGTH_BYTES, "little") + text + old
    return body + sha256(body).digest()


def _said(each: FileRecord) -> dict[str, object]:
    return {
        "name": each.name,
        "device": each.device,
        "inode": each.inode,
        "old": [each.old_size, each.old_time],
        "new": [each.new_size, each.new_time],
        "inserted": each.inserted,
        "runs": [list(run) for run in each.runs],
        "kept": [[kept.at, len(kept.old), b"".join(kept.new).hex()] for kept in each.kept],
        "samples": [[sample.at, sample.length, sample.digest.hex()] for sample in each.samples],
    }


def decode(data: bytes, path: str) -> Journal:
    """Return the journal. Raises DamagedError where one bit of it is not what was written.

    It may come from a stranger, with a SHA-256 that is right: nothing in it is believed before it is looked at.
    """
    body, checksum = data[:-32], data[-32:]
    damaged = DamagedError(f"{path} is damaged, so nothing is restored from it. Restore the checkpoint from a copy.")
    if not data.startswith(MAGIC) or sha256(body).digest() != checksum:
        raise damaged
    start = len(MAGIC) + LENGTH_BYTES
    stop = start + int.from_bytes(body[len(MAGIC) : start], "little")
    try:
        said = json.loads(body[start:stop])
        files = []
        for each in said["files"]:
            record, stop = _read(each, body, stop)
            files.append(record)
        return Journal(_count(said["number"]), _count(said["made"]), tuple(map(str, said["told"])), tuple(files))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise damaged from error


def _read(each: dict[str, Any], body: bytes, at: int) -> tuple[FileRecord, int]:
    """Return what is said of one file, whose old bytes begin at ``at`` of the journal, and where they end.

    Raises ValueError, KeyError, TypeError, IndexError or AttributeError for what no change in place writes.
    """
    kept = []
    for begin, length, digests in each["kept"]:
        new = bytes.fromhex(digests)
        pieces = tuple([new[place : place + _DIGEST] for place in range(0, len(new), _DIGEST)])
        one = Kept(_count(begin), body[at : at + _count(length)], pieces)
        if len(one.old) != length or len(pieces) != len(list(sectors(begin, begin + length))):
            raise ValueError("bytes are missing")
        kept.append(one)
        at += length
    samples = [Sample(_count(begin), _count(length), bytes.fromhex(text)) for begin, length, text in each["samples"]]
    if any(sample.length > _SAMPLED for sample in samples):
        raise ValueError("a sample is larger than any")
    name = each["name"]
    if os.path.basename(name) != name or name in ("", os.curdir, os.pardir):
        raise ValueError("a file in another folder")
    sizes = [_count(size) for size in (each["old"][0], each["new"][0], each["inserted"])]
    record = FileRecord(
        name,
        _count(each["device"]),
        _count(each["inode"]),
        sizes[0],
        int(each["old"][1]),
        sizes[1],
        int(each["new"][1]),
        sizes[2],
        tuple([(_count(begin), _count(end)) for begin, end in each["runs"]]),
        tuple(kept),
        tuple(samples),
    )
    return record, at


def _count(number: object) -> int:
    """Return a number that is not negative, and that a file can have of bytes. Raises ValueError for anything else."""
    if type(number) is not int or not 0 <= number < 1 << 63:
        raise ValueError("not a count")
    return number


def load(disk: Disk, path: str, owner: str) -> Journal:
    """Return the journal at this path, of a change to ``owner``. Raises OSError, and DamagedError."""
    fd = disk.open(path)
    try:
        journal = decode(disk.pread(fd, disk.status(fd).size, 0), path)
    finally:
        disk.close(fd)
    name = os.path.basename(os.path.realpath(owner))
    for each in journal.files:
        if not each.name.endswith(_IN_FOLDERS) if not place(owner)[1] else each.name != name:
            raise DamagedError(f"{path} is not about {name}, so nothing is restored from it. Delete it.")
    return journal


def store(disk: Disk, journal: Journal, hot: str, reserve: int = 0) -> None:
    """Put the journal on the disk under its hot name, complete before it has that. Raises OSError."""
    folder, name = os.path.split(hot)
    data = encode(journal)
    path = os.path.join(folder, f".{name.strip('.')[:120]}.{os.urandom(6).hex()}.ckptdoctor-tmp")
    fd = disk.create(path)
    named = path
    try:
        disk.reserve(fd, 0, len(data) + reserve)
        disk.pwrite(fd, data, 0)
        disk.truncate(fd, len(data))
        disk.fsync(fd)
        disk.rename(path, hot)
        named = hot
        disk.fsync_dir(folder)
    except BaseException:
        disk.unlink(named)
        raise
    finally:
        disk.close(fd)
