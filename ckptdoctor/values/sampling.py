"""Keeps some of the weights of a checkpoint in memory, so that a later one is compared with it after it is gone.

Of each tensor these are blocks at equal distances: all of it where the weights are few. What a block shows counts for
its share of the tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Source, Tensor
from ckptdoctor.checkpoint.sharing import view_in_file
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.differences import Difference, Numbers
from ckptdoctor.formats.fresh.strided import segments
from ckptdoctor.noun import noun, replace
from ckptdoctor.values.diff_bytes import ByteRun
from ckptdoctor.values.diff_numbers import DifferenceMeter, Tolerance
from ckptdoctor.values.distance import is_float, measurable
from ckptdoctor.values.files import Files
from ckptdoctor.writing.recipe import Copy, Literal

_BLOCK = 1 << 12  # elements
_MOST = 1 << 24  # bytes of all samples of a checkpoint, about


@noun
class Sample:
    """Blocks of the weights of a checkpoint by their paths: the first element of each, and its bytes.

    ``complete`` where that is all of them.
    """

    checkpoint: Checkpoint
    blocks: Mapping[KeyPath, tuple[tuple[int, bytes], ...]]
    complete: bool


def sample(checkpoint: Checkpoint, source: Source) -> Sample:
    """Read the blocks of a checkpoint."""
    weights = [(tensor, copy) for tensor in _weights(checkpoint) if (copy := _plain(tensor, checkpoint)) is not None]
    total = sum([copy.length for _, copy in weights])
    blocks = {}
    with Files(source) as files:
        for tensor, copy in weights:
            width = tensor.dtype.bits // 8
            starts = list(_starts(tensor.numel, min(1.0, _MOST / max(total, 1))))
            blocks[tensor.path] = tuple(
                [
                    (first, _read(files, copy, first * width, min(_BLOCK, tensor.numel - first) * width))
                    for first in starts
                ]
            )
    return Sample(checkpoint, blocks, complete=total <= _MOST)


def sampled_distance(before: Sample, found: Difference, b: Source) -> Numbers:
    """Return the difference of the weights of B from those of a sample, of which A has the headers."""
    total = Numbers()
    with Files(b) as there:
        meter = DifferenceMeter(there, there, Tolerance())
        for number, pair in enumerate(measurable(found.pairs)):
            copy = _plain(pair.b, found.b.checkpoint)
            blocks = before.blocks.get(pair.a.path, ())
            if copy is None or not blocks:
                continue
            widths = pair.a.dtype.bits // 8, pair.b.dtype.bits // 8
            measured = Numbers()
            for first, data in blocks:
                count = len(data) // widths[0]
                part = Copy(copy.offset + first * widths[1], count * widths[1], copy.file)
                measured += meter.measure(ByteRun(number, 0, pair.a, pair.b, (Literal(data),), (part,), count))
            share = pair.a.numel / measured.elements
            squares = {name: share * getattr(measured, name) for name in ("square", "square_a", "square_b")}
            total += replace(measured, **squares)
    return total


def _weights(checkpoint: Checkpoint) -> Iterator[Tensor]:
    seen = set()
    for state_dict in checkpoint.state_dicts:
        for tensor in state_dict.tensors if state_dict.role in WEIGHTS else ():
            view = view_in_file(tensor)
            if view not in seen and tensor.numel and is_float(tensor):
                seen.add(view)
                yield tensor


def _plain(tensor: Tensor, checkpoint: Checkpoint) -> Copy | None:
    """Return where the elements are, in C order; None where they have to be put together."""
    if tensor.chunks or tensor.parts or tensor.details:
        return None
    data = segments(tensor, checkpoint.big_endian)
    return data[0] if len(data) == 1 and isinstance(data[0], Copy) and data[0].file is not None else None


def _starts(elements: int, share: float) -> Iterator[int]:
    """Yield where the blocks begin that make up about this share of so many elements, at least one."""
    if share >= 1.0 or elements <= _BLOCK:
        yield from range(0, elements, _BLOCK)
        return
    count = max(1, round(elements * share / _BLOCK))
    for number in range(count):
        yield round((number + 0.5) * elements / count - _BLOCK / 2) if count > 1 else (elements - _BLOCK) // 2


def _read(files: Files, copy: Copy, offset: int, length: int) -> bytes:
    data = bytearray(length)
    assert copy.file is not None
    files.fill(copy.file, copy.offset + offset, memoryview(data))
    return bytes(data)
