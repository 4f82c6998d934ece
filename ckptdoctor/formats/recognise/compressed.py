"""Recognises gzip, bzip2, xz, zlib and lzma files, and unpacks a little of each to say what is inside."""

from __future__ import annotations

from collections.abc import Callable

from ckptdoctor.formats.recognise.magic import Found, inside, shortened

# how much is unpacked, at most
_PEEK = 1024

_GZIP_NAME = 0x08  # the flag that the original file's name follows the header
_GZIP_HEADER = 10


def recognise_compressed(head: bytes) -> Found | None:
    """Return a compressed file, and what it seems to hold."""
    for magic, name, command, peek in _KINDS:
        if head.startswith(magic):
            held = inside(peek(head))
            what = f"It holds {held}. " if held else ""
            return Found(f"{name} file", f"{what}Unpack it ({command}) and open the result{_original(head)}.")
    return _without_magic(head)


def _without_magic(head: bytes) -> Found | None:
    """Return a bare stream, as joblib writes.

    Its first bytes may be anything's, so it is one where it holds what is known.
    """
    for begins, name, peek in _BARE:
        held = inside(peek(head)) if head.startswith(begins) else ""
        if held:
            return Found(f"{name} file", f"It holds {held}. joblib.load reads it.")
    return None


def _original(head: bytes) -> str:
    """Return the name that gzip keeps of the file it compressed, as the end of a sentence."""
    if not head.startswith(b"\x1f\x8b") or len(head) < _GZIP_HEADER or not head[3] & _GZIP_NAME:
        return ""
    name = head[_GZIP_HEADER:].split(b"\0")[0].decode("latin-1")
    return f' (it was called "{shortened(name, 60)}")' if name.isprintable() and name else ""


def _gzip(head: bytes) -> bytes:
    import zlib

    try:
        return zlib.decompressobj(31).decompress(head, _PEEK)
    except zlib.error:
        return b""


def _zlib(head: bytes) -> bytes:
    import zlib

    try:
        return zlib.decompressobj().decompress(head, _PEEK)
    except zlib.error:
        return b""


def _bzip2(head: bytes) -> bytes:
    import bz2

    try:  # bzip2 gives nothing before a whole block, so only small files can be looked into
        return bz2.BZ2Decompressor().decompress(head, _PEEK)
    except OSError:
        return b""


def _xz(head: bytes) -> bytes:
    import lzma

    try:  # xz, or lzma: the decompressor tells them apart
        return lzma.LZMADecompressor(memlimit=128 << 20).decompress(head, _PEEK)
    except lzma.LZMAError:
        return b""


_KINDS: tuple[tuple[bytes, str, str, Callable[[bytes], bytes]], ...] = (
    (b"\x1f\x8b\x08", "gzip", "gunzip", _gzip),
    (b"BZh", "bzip2", "bunzip2", _bzip2),
    (b"\xfd7zXZ\x00", "xz", "unxz", _xz),
)

# a method and a window of 32 KiB, then a level whose check digits fit; the properties that lzma and joblib use
_BARE: tuple[tuple[bytes | tuple[bytes, ...], str, Callable[[bytes], bytes]], ...] = (
    ((b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), "zlib", _zlib),
    (b"\x5d\x00\x00", "lzma", _xz),
)
