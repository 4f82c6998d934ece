"""Has the values of a checkpoint read, or takes those that were read in parts, and notes what they say of space.

Float32 takes twice the bytes that bfloat16 does. Where the last 16 bits of all its weights are zero, half of
it is nothing: ``check --deep`` finds that out anyway, for T554, and here it is counted, tensor by tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

from ckptdoctor.checkpoint import Checkpoint, Source
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.diagnose.settings import Reader
from ckptdoctor.rules.framework import Rule
from ckptdoctor.stores.contents import Checksums

if TYPE_CHECKING:
    from ckptdoctor.examine.shares import Known
    from ckptdoctor.values.statistics import Values

# by the path of each member what was read of it: its values (``examine.shares``), and checksums that it has not itself
Part = dict[str, tuple["Known", Checksums]]


class Readers:
    """Gives each member of a checkpoint who reads it, and adds up what the values say."""

    def __init__(self, read: Part) -> None:
        self._read = read
        self.wasted_bytes: int | None = None

    def of(self, path: str) -> Reader:
        """Return who reads the member at a path: the examination itself, or who knows what was read already."""

        def reader(
            checkpoint: Checkpoint, source: Source, rules: Iterable[Rule], pictures: bool
        ) -> Generator[Any, None, Any]:
            from ckptdoctor.examine.deep import read_everything
            from ckptdoctor.examine.shares import reading

            read: Reader = reading(self._read[path][0]) if path in self._read else read_everything
            integrity, values = yield from read(checkpoint, source, rules, pictures)
            if values.result is not None and values.complete:
                self.wasted_bytes = (self.wasted_bytes or 0) + wasted_bytes(values.result)
            return integrity, values

        return reader


def wasted_bytes(values: Values) -> int:
    """Return what bfloat16 would save of float32 weights that it holds exactly, without those that others view."""
    weights = {tensor.path for each in weights_among(values.checkpoint.state_dicts) for tensor in each.tensors}
    viewed: Counter[object] = Counter()
    held: dict[object, int] = {}
    needed: set[object] = set()  # storages of which something needs all bits, or is not a weight
    for tensor in values.checkpoint.tensors:
        storage = tensor.storage
        place = storage.key if storage is not None else id(tensor)
        read = values.of(tensor)
        if tensor.path not in weights or tensor.dtype.name != "float32" or read is None or "bfloat16" not in read.fits:
            needed.add(place)
        viewed[place] += tensor.nbytes
        held[place] = storage.nbytes if storage is not None else tensor.nbytes
    return sum(min(viewed[place], nbytes) // 2 for place, nbytes in held.items() if place not in needed)
