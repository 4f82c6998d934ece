"""Unpacks gzip, bzip2, xz, zlib, lzma and zstd files piece by piece, in bounded memory."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

from ckptdoctor.checkpoint import Source
from ckptdoctor.checkpoint.source import AsFile
from ckptdoctor.errors import DamagedError, NotACheckpointError, TruncatedError
from ckptdoctor.shell import quote

_CHUNK = 1 << 20  # bytes read, and unpacked, at a time
_MOST_MEMORY = 1 << 30  # what unpacking may need to know of earlier bytes (xz -9 takes 64 MiB)


class _Unpacker(Protocol):
    """What bz2, lzma and compression.zstd offer for one stream."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """zlib's decompressor with the manners of the others; its ``window`` says which header to expect."""

    def __init__(self, window: int = 31) -> None:
        self._inner = zlib.decompressobj(window)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.eof and not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


def _bzip2() -> _Unpacker:
    import bz2

    return cast(_Unpacker, bz2.BZ2Decompressor())


def _xz() -> _Unpacker:
    import lzma

    return cast(_Unpacker, lzma.LZMADecompressor(memlimit=_MOST_MEMORY))


# how each begins, and what unpacks one stream of it; a bare stream of zlib or lzma is never followed by another
_KINDS: dict[str, tuple[bytes, Callable[[], _Unpacker]]] = {
    "gzip file": (b"\x1f\x8b", _Gzip),
    "bzip2 file": (b"BZh", _bzip2),
    "xz file": (b"\xfd7zXZ\x00", _xz),
    "zlib file": (b"", lambda: _Gzip(zlib.MAX_WBITS)),
    "lzma file": (b"", _xz),
}
# zstd goes its own way where Python has nothing for it
STREAMS = frozenset({*_KINDS, "zstd file"})


def decompressed(source: Source, kind: str) -> Iterator[bytes]:
    """Return what is in a compressed file. Raises TruncatedError where it breaks off, and DamagedError."""
    if kind == "zstd file":
        return _zstd(source)
    magic, unpacker = _KINDS[kind]
    return _streams(source, magic, unpacker, _errors(unpacker))


def _errors(unpacker: Callable[[], _Unpacker]) -> tuple[type[Exception], ...]:
    """Return what the library raises for bytes that it cannot unpack."""
    if unpacker is not _xz:
        return zlib.error, OSError, EOFError, ValueError
    import lzma

    return lzma.LZMAError, EOFError, ValueError


def _streams(
    source: Source, magic: bytes, new: Callable[[], _Unpacker], errors: tuple[type[Exception], ...]
) -> Iterator[bytes]:
    """Stream after stream; zero bytes between them and whatever else follows the last one are left alone."""
    made, data, at = new(), b"", 0
    while True:
        if made.eof:
            data = (made.unused_data or data).lstrip(b"\0")
            while len(data) < len(magic) and at < source.size:
                more, at = _more(source, at)
                data = (data + more).lstrip(b"\0")
            if not magic or not data.startswith(magic):
                return
            made = new()
        if not data and made.needs_input:
            if at >= source.size:
                raise TruncatedError(f"It ends at byte {source.size:,}, before its contents do.", offset=source.size)
            data, at = _more(source, at)
        try:
            piece = made.decompress(data, _CHUNK)
        except errors as error:
            raise DamagedError(f"It is damaged near byte {at:,}: {error}.", offset=at) from error
        data = b""
        if piece:
            yield piece


def _more(source: Source, at: int) -> tuple[bytes, int]:
    length = min(_CHUNK, source.size - at)
    return source.read(at, length), at + length


def _zstd(source: Source) -> Iterator[bytes]:
    try:
        from compression import zstd
    except ImportError:
        return _zstandard(source)
    return _streams(source, b"\x28\xb5\x2f\xfd", zstd.ZstdDecompressor, (zstd.ZstdError, EOFError, ValueError))


def _zstandard(source: Source) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError as error:
        how = f"pip install 'ckptdoctor[zstd]', or unpack it (zstd -d {quote(source.path)})"
        raise NotACheckpointError(
            f"{source.path} is a zstd file, which this Python cannot unpack by itself: {how}."
        ) from error
    reader = zstandard.ZstdDecompressor(max_window_size=_MOST_MEMORY).stream_reader(
        io.BufferedReader(AsFile(source), _CHUNK), read_across_frames=True
    )
    return _read(reader, zstandard.ZstdError, source)


def _read(reader: Any, error_type: type[Exception], source: Source) -> Iterator[bytes]:
    while True:
        try:
            piece = reader.read(_CHUNK)
        except error_type as error:
            raise DamagedError(f"It is damaged: {error}.") from error
        if not piece:
            return
        yield piece
