"""Casts numbers as ``Tensor.to`` does: to the nearest one, ties to even, too large ones to infinity.

float64 becomes bfloat16 or float16 by way of float32, as in torch. Which NaN a NaN becomes in bfloat16 depends on the
processor in torch; here it always keeps its sign and the upper bits of its payload, as float16 does there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_PIECE = 1 << 17  # numbers that are cast at once: they stay in the cache

_SHARED = 1 << 15  # numbers that torch leaves to one thread anyway (at::internal::GRAIN_SIZE), and one more

# of the narrow dtypes: bits of the mantissa, and what infinity is
_NARROW = {"bfloat16": (7, 0x7F80), "float16": (10, 0x7C00)}


def numbers(data: bytes, dtype: str) -> torch.Tensor:
    """The numbers that these little-endian bytes are."""
    import torch

    kind = getattr(torch, dtype)
    return torch.frombuffer(bytearray(data), dtype=kind) if data else torch.empty(0, dtype=kind)


@contextmanager
def one_thread(count: int) -> Iterator[None]:
    """Let torch compute so many numbers in this thread alone: a piece is done before the others have woken up."""
    import torch

    before = torch.get_num_threads() if count >= _SHARED else 1
    if before != 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if before != 1:
            torch.set_num_threads(before)


def in_pieces(chunks: Iterable[bytes], width: int) -> Iterator[bytes]:
    """The same bytes in pieces of whole numbers of ``width`` bytes each."""
    size, left = _PIECE * width, b""
    for chunk in chunks:
        data = left + chunk if left else chunk
        whole = len(data) - len(data) % width
        yield from (data[at : min(at + size, whole)] for at in range(0, whole, size))
        left = data[whole:]
    if left:
        raise ValueError(f"{len(left)} bytes are left over at the end of numbers of {width} bytes")


def cast(data: bytes, source: str, target: str) -> bytes:
    """The bytes of these numbers of the dtype ``source`` in the dtype ``target``."""
    import torch

    given = numbers(data, source)
    kind: torch.dtype = getattr(torch, target)
    made = bytearray(given.numel() * kind.itemsize)
    if not made:
        return b""
    there = torch.frombuffer(made, dtype=kind)
    there.copy_(given)
    if target in _NARROW and given.element_size() > 1 and not isfinite(given.sum().item()):  # or the sum overflowed
        _keep_nans(given, there, *_NARROW[target])
    return bytes(made)


def _keep_nans(given: torch.Tensor, there: torch.Tensor, mantissa: int, infinity: int) -> None:
    """NaNs keep their sign and the upper bits of their payload, and are quiet."""
    import torch

    places = given.isnan().nonzero().flatten()
    if not places.numel():
        return
    wide = given[places].double().view(torch.int64)  # any NaN as a float64, whose payload begins with its own
    sign = wide >> 63 & 1
    payload = wide >> (52 - mantissa) & ((1 << mantissa) - 1) | 1 << (mantissa - 1)
    bits = payload | infinity
    there.view(torch.int16)[places] = torch.where(sign == 1, bits - 0x8000, bits).to(torch.int16)
