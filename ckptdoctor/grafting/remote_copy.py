"""Opens another copy that is on another machine: only what is asked of it is fetched, once, and kept in a local file.

The file is as long as the remote one, has what was fetched in its place, and holes elsewhere. So ranges of it can be
copied into an output like those of any other file, and the bytes that are proven are the ones that are written.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from threading import RLock

from ckptdoctor import formats
from ckptdoctor.checkpoint import Container, Source, Storage, Tensor
from ckptdoctor.checkpoint.checkpoint import FileIdentity
from ckptdoctor.checkpoint.progress import Progress, Work, in_thread
from ckptdoctor.checkpoint.source import read_at
from ckptdoctor.errors import RefusedError, TruncatedError, UsageError
from ckptdoctor.formats.packed import scratch
from ckptdoctor.grafting.damage import storages_of
from ckptdoctor.remote import open_remote
from ckptdoctor.remote.addresses import shown
from ckptdoctor.remote.downloading import command
from ckptdoctor.remote.source import RemoteSource
from ckptdoctor.shell import quote
from ckptdoctor.wording import format_name
from ckptdoctor.writing.system import put

_REQUEST = 8 << 20  # bytes that are fetched at once
_GAP = 16 << 10  # bytes between two ranges that cost less than another request


class FetchedSource:
    """A remote file, of which ``file`` holds what was fetched. ``path`` is its address as it may be shown."""

    identity: FileIdentity | None = None
    distant = True

    def __init__(self, remote: RemoteSource, file: str, handle: int) -> None:
        self.path, self.file, self.size = remote.path, file, remote.size
        self.remote = remote
        self._handle = handle
        self._kept: list[tuple[int, int]] = []  # ranges that are in the file: sorted, and apart
        self._lock = RLock()
        with _room():
            os.ftruncate(handle, self.size)

    @property
    def bytes_read(self) -> int:
        """Bytes fetched so far."""
        return self.remote.bytes_read

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes at ``offset``, fetched unless they were. Raises what fetching them does."""
        with self._lock:
            if offset < 0 or length < 0 or not self.has(offset, length):
                self._keep(offset, self.remote.read(offset, length))
            return self._held(offset, length)

    def has(self, offset: int, length: int) -> bool:
        """Return whether all of these bytes are in the file."""
        at = bisect_right(self._kept, (offset, self.size)) - 1
        return not length or (at >= 0 and offset + length <= self._kept[at][1])

    def fetch(self, ranges: Iterable[tuple[int, int]], work: Work) -> None:
        """Fetch these (offset, length), each once, which ``work`` counts.

        Raises UnreadableError where they cannot be had, and TruncatedError for what is behind the end.
        """
        for offset, length in _joined(ranges):
            if offset + length > self.size:
                message = f"{self.path} ends at byte {self.size:,}, within a tensor."
                raise TruncatedError(message, offset=self.size)
            for at in range(offset, offset + length, _REQUEST):
                step = min(_REQUEST, offset + length - at)
                if not self.has(at, step):
                    with self._lock:
                        self._keep(at, self.remote.fetch(at, step))
                work.advance(step)

    def part(self, file: str) -> Source:
        """Return itself: all bytes of a checkpoint in one file are here."""
        return self

    def close(self) -> None:
        """End the connection."""
        self.remote.close()

    def _keep(self, offset: int, data: bytes) -> None:
        with _room():
            put(self._handle, data, offset)
        self._kept = _merged([*self._kept, (offset, offset + len(data))])

    def _held(self, offset: int, length: int) -> bytes:
        data = b""
        while len(data) < length:
            piece = read_at(self._handle, length - len(data), offset + len(data))
            if not piece:
                raise TruncatedError(f"{self.file} ended at byte {offset + len(data)} while it was read.")
            data = data + piece if data else piece
        return data


def _joined(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the same as few requests: what is nearly next to each other is one."""
    for first, last in _merged([(offset, offset + length) for offset, length in ranges if length], _GAP):
        yield first, last - first


def _merged(spans: Sequence[tuple[int, int]], gap: int = 0) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + gap:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        elif last > first:
            found.append((first, last))
    return found


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RefusedError(
            f"There is no place for what is fetched in {scratch.folder()}: {error.strerror}. Set TMPDIR to a folder "
            "with more space."
        ) from error


def open_copy(stack: ExitStack, address: str) -> tuple[FetchedSource, Container]:
    """Return the file at an address, open until the stack ends, and what it is.

    Raises UnreadableError where it cannot be reached, and UsageError for a folder, or for what has to be unpacked.
    """
    if address.endswith("/"):
        raise UsageError(f"{shown(address)} is a folder: name the file in it that is the copy of the damaged one.")
    remote = stack.enter_context(closing(open_remote(address)))
    path, handle = stack.enter_context(scratch.new_file(("fetched", address)))
    stack.callback(_removed, path)
    source = FetchedSource(remote, path, handle)
    container = formats.examine(source)
    if container.format in formats.PACKED:
        name = shown(address)
        raise UsageError(
            f"{name} is a {format_name(container.format)}, which cannot be fetched in parts. "
            f"Download it: {command(name)}"
        )
    return source, container


def _removed(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def fetched(source: FetchedSource, tensors: Iterable[Tensor]) -> Generator[Progress, None, None]:
    """Fetch everything that these tensors are made of, each byte once."""
    extents = {storage.extent for tensor in tensors for storage in storages_of(tensor) if storage.extent is not None}
    ranges = sorted([(extent.offset, extent.length) for extent in extents])

    def fetch(work: Work) -> bool:
        source.fetch(ranges, work)
        return True

    if ranges:
        (yield from in_thread(fetch, "fetching", sum([length for _, length in _joined(ranges)]))).require()


def same_checksums(one: Tensor, other: Tensor) -> bool | None:
    """Return whether the storages of two tensors have equal checksums; None where these say nothing about that."""
    mine, its = list(storages_of(one)), list(storages_of(other))
    views = [(each.dtype.name, each.shape, each.offset, each.stride) for each in (one, other)]
    if not mine or len(mine) != len(its) or views[0] != views[1]:
        return None
    told = [_told(a, b) for a, b in zip(mine, its, strict=True)]
    return None if None in told else all(told)


def _told(one: Storage, other: Storage) -> bool | None:
    if one.crc32 is None or other.crc32 is None or one.nbytes != other.nbytes:
        return None
    return one.crc32 == other.crc32


def download_and_graft(path: str, address: str, output: str) -> Iterator[str]:
    """Yield the commands that compare all of the other copy, which has to be here for that."""
    yield f"  {command(shown(address))}"
    yield f"  ckptdoctor graft {quote(path)} --from {quote(name_of(address))} -o {quote(output)}"


def name_of(address: str) -> str:
    """Return what a file is called that was downloaded into the current folder."""
    return os.path.basename(shown(address).partition("?")[0]) or "OTHER"
