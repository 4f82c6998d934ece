"""Numbers of several parts, so many of each at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.edits.elements import Elements

if TYPE_CHECKING:
    import torch

BLOCK = 4 << 20  # bytes that are read at once
PIECE = 1 << 17  # numbers that are worked on at once: they stay in the cache

# gives the bytes of elements in C order, some at a time, at most about so many
Read = Callable[[Elements, int], Iterator[bytes]]

_INTEGERS = {"float64": "int64", "float32": "int32", "float16": "int16", "bfloat16": "int16"}


def tensor(data: bytes | bytearray, dtype: str) -> torch.Tensor:
    """The numbers that these little-endian bytes are."""
    import torch

    kind = getattr(torch, dtype)
    owned = data if isinstance(data, bytearray) else bytearray(data)
    return torch.frombuffer(owned, dtype=kind) if owned else torch.empty(0, dtype=kind)


def data_of(numbers: torch.Tensor) -> bytes:
    """The little-endian bytes of these numbers."""
    import torch

    made = bytearray(numbers.numel() * numbers.element_size())
    if made:
        torch.frombuffer(made, dtype=numbers.dtype).copy_(numbers.reshape(-1))
    return bytes(made)


def bits_of(numbers: torch.Tensor, dtype: str) -> torch.Tensor:
    """The same bits as integers."""
    import torch

    kind: torch.dtype = getattr(torch, _INTEGERS[dtype])
    return numbers.view(kind)


class Stream:
    """The numbers of one part in C order."""

    def __init__(self, part: Elements, dtype: str, read: Read) -> None:
        self._chunks = read(part, BLOCK)
        self._dtype = dtype
        self._width = BY_NAME[dtype].bits // 8
        self._left: bytes | memoryview = b""

    def take(self, count: int) -> torch.Tensor:
        """The next ``count`` numbers."""
        wanted = count * self._width
        made = bytearray()
        while len(made) < wanted:
            if not self._left:
                self._left = memoryview(next(self._chunks, b""))
                if not self._left:
                    raise ValueError(f"{wanted - len(made)} bytes are missing at the end of a tensor")
            some = self._left[: wanted - len(made)]
            made += some
            self._left = self._left[len(some) :]
        return tensor(made, self._dtype)


def whole(part: Elements, dtype: str, read: Read) -> torch.Tensor:
    """All numbers of a part, in float64."""
    return tensor(bytearray().join(read(part, BLOCK)), dtype).double()
