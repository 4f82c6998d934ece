"""In which order the elements of a tensor lie in memory, in a word that torch's users know."""

from __future__ import annotations

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.tensor import contiguous_stride, is_contiguous
from ckptdoctor.report.numbers import plain

_CHANNELS_LAST = {4: "channels_last", 5: "channels_last_3d"}  # torch.memory_format


def order(tensor: Tensor) -> str:
    """``contiguous``, ``channels_last``, ``transposed``, or the strides."""
    if is_contiguous(tensor):
        return "contiguous"
    rank = len(tensor.shape)
    if rank in _CHANNELS_LAST and _lies(tensor, (0, *range(2, rank), 1)):
        return _CHANNELS_LAST[rank]
    if rank == 2 and _lies(tensor, (1, 0)):
        return "transposed"
    return f"strides ({', '.join(map(plain, tensor.stride))})"


def _lies(tensor: Tensor, dimensions: tuple[int, ...]) -> bool:
    """Whether the elements lie without gaps, in the order of these dimensions from the slowest to the fastest."""
    wanted = contiguous_stride(tuple([tensor.shape[each] for each in dimensions]))
    return all(
        tensor.shape[each] == 1 or tensor.stride[each] == want for each, want in zip(dimensions, wanted, strict=True)
    )
