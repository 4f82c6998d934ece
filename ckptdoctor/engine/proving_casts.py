"""Holds cast tensors against the original: each number must be the nearest one that the new dtype has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.edits.elements import Converted, Elements
from ckptdoctor.errors import WriteError

Read = Callable[[int, int], bytes]  # (first byte, length)
Chunks = Callable[[Elements], Iterator[bytes]]


def insist_on_cast(numbers: Converted, chunks: Chunks, read: Read) -> None:
    """Raises WriteError unless ``read`` gives the bytes of the numbers; ``chunks`` gives those of what was cast."""
    from ckptdoctor.casting.cast import in_pieces, one_thread
    from ckptdoctor.casting.proof import is_cast

    width, at = BY_NAME[numbers.kind].bits // 8, 0
    with one_thread(prod(numbers.shape)):
        for given in in_pieces(chunks(numbers.parts[0]), width):
            length = len(given) // width * numbers.width
            if not is_cast(given, read(at, length), numbers.kind, numbers.dtype):
                raise WriteError(
                    f"A number of the output is not the nearest one that {numbers.dtype} has; it was thrown away."
                )
            at += length
