"""Tells contents by what headers say of them: the CRC32 that a zip keeps of each record is a hash that nobody computed.

Two files with the same keys, dtypes, shapes and checksums hold the same tensors, in which container and under which
name ever; two checkpoints of a run with the same checksum for a key did not change it between them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable
from contextlib import closing
from hashlib import blake2b
from sqlite3 import Connection

from ckptdoctor.checkpoint import Checkpoint, Extent, FileSource, KeyPath, Role, Storage, Tensor, show_path
from ckptdoctor.checkpoint.weights import WEIGHTS, weights_among
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.noun import noun
from ckptdoctor.remote import open_remote
from ckptdoctor.remote.addresses import is_address

_RESUMING = (Role.OPTIMIZER, Role.SCHEDULER, Role.RNG)  # roles of what only resuming needs
_WEIGHTS = frozenset([each.value for each in WEIGHTS])
_WIDTH = 4  # bytes of a checksum
_CHUNK = 4 << 20  # bytes that are read at a time


@noun
class Layout:
    """What the headers of one file, or of one folder of shards, say of its tensors.

    ``keys`` is a JSON list of [key path, dtype, shape, role], compressed, and ``key`` the hash of it. ``checksums`` has
    4 bytes for each tensor of the weights, None unless all tensors have one. ``content`` is the hash of keys and all
    checksums, ``weights`` that of the weights alone, whatever they are called.
    """

    key: int
    keys: bytes
    tensors: int
    parameters: int
    nbytes: int
    optimizer_bytes: int
    dtypes: dict[str, int]
    checksums: bytes | None
    content: int | None
    weights: int | None


def layout_of(checkpoint: Checkpoint, read: Callable[[Storage], int | None] | None = None) -> Layout:
    """Return what the headers say of the tensors, in the order of the file.

    ``read`` gives the CRC32 of a storage of which none is stored; without it there is none.
    """
    roles = _roles(checkpoint)
    rows, weights = [], []
    checksums, kept = bytearray(), bytearray()
    missing = False
    views: list[tuple[object, ...]] = []
    parameters = nbytes = optimizer_bytes = 0
    dtypes: dict[str, int] = {}
    counted: set[str] = set()
    for tensor in checkpoint.tensors:
        role = roles.get(tensor.path)
        rows.append((show_path(tensor.path), tensor.dtype.name, tensor.shape, role or ""))
        numel, size, storage = tensor.numel, tensor.nbytes, tensor.storage
        fresh = storage is None or storage.key not in counted  # tied tensors and views count once
        if storage is not None:
            counted.add(storage.key)
        if fresh:
            nbytes += size
        if role in _RESUMING:
            optimizer_bytes += size if fresh else 0
        elif fresh:
            parameters += numel
            dtypes[tensor.dtype.name] = dtypes.get(tensor.dtype.name, 0) + size
        checksum = _checksum(tensor, numel, read)
        if checksum is None:
            missing = True
            continue
        packed = checksum.to_bytes(_WIDTH, "little")
        checksums += packed
        views.append((tensor.offset, tensor.stride))
        if role in WEIGHTS:
            kept += packed
            weights.append((tensor.dtype.name, tensor.shape, tensor.offset, tensor.stride, checksum))
    text = _JSON.encode(rows).encode("utf-8", "surrogatepass")
    key = _hash(text)
    whole = not missing and bool(rows)
    return Layout(
        *(key, text, len(rows), parameters, nbytes, optimizer_bytes, dtypes),
        checksums=bytes(kept) if whole and kept else None,
        content=_hash(b"%d" % key, bytes(checksums), repr(views).encode()) if whole else None,
        weights=_hash(repr(sorted(weights)).encode()) if whole and weights else None,
    )


_JSON = json.JSONEncoder(separators=(",", ":"))


def _roles(checkpoint: Checkpoint) -> dict[KeyPath, Role]:
    """Return the role of each tensor that is in a state dict, by its path; of one in several, that of the innermost."""
    weights = {id(each) for each in weights_among(checkpoint.state_dicts)}
    found: dict[KeyPath, Role] = {}
    for each in checkpoint.state_dicts:
        if each.role not in WEIGHTS or id(each) in weights:
            for tensor in each.tensors:
                found[tensor.path] = each.role
    return found


def _checksum(tensor: Tensor, numel: int, read: Callable[[Storage], int | None] | None) -> int | None:
    """Return the CRC32 of what a tensor views, 0 where it has no bytes; None where there is none."""
    if numel == 0:
        return 0
    storage = tensor.storage
    if storage is None or tensor.parts or tensor.chunks:
        return None
    return storage.crc32 if storage.crc32 is not None or read is None else read(storage)


# of bytes at a place of a file, by that and their number; None where they could not be read
Checksums = dict[tuple[str, int, int], "int | None"]


class Reading:
    """Computes the CRC32 of storages that have none, by reading all their bytes, each once; ``found`` has them all."""

    def __init__(self, found: Checksums | None = None) -> None:
        self.found: Checksums = dict(found or {})

    def read_for(self, tensor: Tensor) -> None:
        """Compute what ``layout_of`` asks for a tensor."""
        _checksum(tensor, tensor.numel, self)

    def __call__(self, storage: Storage) -> int | None:
        """Return the CRC32 of what is stored, None where that cannot be read as it is in memory."""
        extent = storage.extent
        if extent is None or storage.compressed or extent.length != storage.nbytes:
            return None
        place = extent.file, extent.offset, extent.length
        if place not in self.found:
            self.found[place] = self._of(extent)
        return self.found[place]

    @staticmethod
    def _of(extent: Extent) -> int | None:
        made = 0
        try:
            with closing(open_remote(extent.file) if is_address(extent.file) else FileSource(extent.file)) as source:
                end = extent.offset + extent.length
                for at in range(extent.offset, end, _CHUNK):
                    made = zlib.crc32(source.read(at, min(_CHUNK, end - at)), made)
        except CkptDoctorError:  # its examination says what is wrong
            return None
        return made


def together(contents: Iterable[int | None]) -> int | None:
    """Return the hash of several, in whatever order; None where one is not known, or there are none."""
    found = list(contents)
    known = [each for each in found if each is not None]
    if not found or len(known) < len(found):
        return None
    return known[0] if len(known) == 1 else _hash(repr(sorted(known)).encode())


def _hash(*parts: bytes) -> int:
    digest = blake2b(digest_size=8)
    for each in parts:
        digest.update(each)
    return int.from_bytes(digest.digest(), "big") >> 1


# ---- what an inventory tells of the checkpoints of a run


@noun
class Unchanged:
    """Keys of weights that all checkpoints of a run hold with the same checksum, among so many (``of``)."""

    run: str
    checkpoints: int
    keys: tuple[str, ...]
    of: int


def unchanged(connection: Connection, run: int) -> Unchanged | None:
    """Return which keys never changed among the checkpoints of a run that are called alike; None with fewer than two.

    Only what has checksums is compared; where a run has several layouts, that of most checkpoints.
    """
    found: dict[int, list[bytes]] = {}
    for layout, contents in connection.execute(
        "SELECT member.layout, member.contents FROM checkpoint CROSS JOIN member ON member.checkpoint = checkpoint.id "
        "WHERE checkpoint.run = ? AND member.contents IS NOT NULL AND checkpoint.level IS NOT NULL",
        (run,),
    ):
        found.setdefault(layout, []).append(contents)
    layout, rows = max(found.items(), key=lambda each: len(each[1]), default=(0, []))
    if len(rows) < 2:
        return None
    (path,) = connection.execute("SELECT path FROM run WHERE id = ?", (run,)).fetchone()
    (packed,) = connection.execute("SELECT keys FROM layout WHERE id = ?", (layout,)).fetchone()
    keys = [key for key, *_, role in json.loads(zlib.decompress(packed)) if role in _WEIGHTS]
    same = [
        key
        for at, key in enumerate(keys)
        if len({row[at * _WIDTH : (at + 1) * _WIDTH] for row in rows}) == 1
    ]  # fmt: skip
    return Unchanged(path, len(rows), tuple(same), len(keys))
