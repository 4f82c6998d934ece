"""Where the zero bytes begin with which a file ends that was given its full size before its contents."""

from __future__ import annotations

from ckptdoctor.checkpoint import Source

# fewer zeros are what many tensors end with
LEAST = 64 << 10

_CHUNK = 1 << 20


def zero_tail(source: Source) -> int | None:
    """The byte at which a run of at least 64 KiB of zeros begins that reaches to the end; None when there is none."""
    at = source.size
    while at > 0:
        start = max(0, at - _CHUNK)
        left = source.read(start, at - start).rstrip(b"\0")
        at = start + len(left)
        if left:
            break
    return at if source.size - at >= LEAST else None
