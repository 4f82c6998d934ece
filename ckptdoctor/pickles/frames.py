"""Cutting a protocol 4 or 5 stream into frames: as it was where that still fits, else as Python's pickler would."""

from __future__ import annotations

from itertools import accumulate
from struct import pack

# A pickler closes a frame once it holds this many bytes, and writes anything of this size outside of frames.
_TARGET = 64 * 1024

# A frame of fewer bytes is not worth its header (``pickle._Framer._FRAME_SIZE_MIN``).
_SMALLEST = 4

_HEADER = 9


def framed(chunks: list[bytes], frames: list[tuple[int, int]]) -> bytes:
    """The instructions in ``chunks`` as one stream, with frames if it had ``frames`` (start, length) before."""
    if not frames:
        return b"".join(chunks)
    return _as_before(chunks, frames) or _anew(chunks)


def _as_before(chunks: list[bytes], frames: list[tuple[int, int]]) -> bytes | None:
    """The stream with the same frames, or None when one would begin or end within an instruction."""
    boundaries = set(accumulate(map(len, chunks)))
    body = b"".join(chunks)
    out: list[bytes] = []
    done = 0
    for number, (start, length) in enumerate(frames, 1):
        begin = start - number * _HEADER
        if begin < done or begin not in boundaries or begin + length not in boundaries:
            return None
        out += body[done:begin], b"\x95", pack("<Q", length), body[begin : begin + length]
        done = begin + length
    return b"".join([*out, body[done:]])


def _anew(chunks: list[bytes]) -> bytes:
    """The stream in frames of about 64 KiB; the first instruction is PROTO and stands before them."""
    out = chunks[:1]
    frame: list[bytes] = []
    size = 0
    for chunk in chunks[1:]:
        if len(chunk) >= _TARGET:
            out += [*_closed(frame, size), chunk]
            frame, size = [], 0
            continue
        frame.append(chunk)
        size += len(chunk)
        if size >= _TARGET:
            out += _closed(frame, size)
            frame, size = [], 0
    return b"".join(out + _closed(frame, size))


def _closed(frame: list[bytes], size: int) -> list[bytes]:
    return frame if size < _SMALLEST else [b"\x95" + pack("<Q", size), *frame]
