"""The arrays that joblib writes into the stream of a pickle, each right behind the object that stands for it.

Source: ``joblib.numpy_pickle.NumpyArrayWrapper`` of joblib 0.10 to 1.6. The object's state tells how long the array is.
"""

from __future__ import annotations

from math import prod

from ckptdoctor.errors import DamagedError
from ckptdoctor.formats.arrays.pickled.elements import Kind, kind_of
from ckptdoctor.formats.torch.read.arguments import plain_dict
from ckptdoctor.formats.torch.read.steps import filling
from ckptdoctor.formats.torch.read.values import CALLS, full_name, integer, items, text
from ckptdoctor.noun import noun
from ckptdoctor.pickles.graph import Made, Value

WRAPPERS = frozenset(
    {"joblib.numpy_pickle.NumpyArrayWrapper", "sklearn.externals.joblib.numpy_pickle.NumpyArrayWrapper"}
)

_PLAIN = frozenset({"numpy.ndarray", "numpy.memmap", "numpy.core.memmap.memmap"})
_ALIGNMENT = "numpy_array_alignment_bytes"
_MAX_COUNT = (1 << 63) - 1


@noun
class Wrapped:
    """What the object says of its array: ``plain`` is whether it is no matrix or other subclass."""

    shape: tuple[int, ...]
    fortran: bool
    kind: Kind
    aligned: bool
    plain: bool

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return prod(self.shape) * self.kind.itemsize


def is_wrapper(value: Value) -> bool:
    """Whether an object stands for an array that follows it."""
    return type(value) is Made and value.op in CALLS and full_name(value.items[0]) in WRAPPERS


def wrapped(node: Made, at: int) -> Wrapped:
    """The array that an object stands for. Raises DamagedError where it does not tell how long that is."""
    states = filling(node).states
    state = plain_dict(states[-1]) if states else {}
    given = items(state.get("shape"))
    sizes = [None] if given is None else [integer(size) for size in given]
    kind = kind_of(state.get("dtype"))
    if kind is None or any(size is None or not 0 <= size <= _MAX_COUNT for size in sizes):
        raise DamagedError(
            f"the array that joblib wrote at byte {at} has no shape and type that tell its length: the file is damaged",
            offset=at,
        )
    shape = tuple([size for size in sizes if size is not None])
    aligned = integer(state.get(_ALIGNMENT)) is not None
    plain = full_name(state.get("subclass")) in _PLAIN
    return Wrapped(shape, text(state.get("order")) == "F", kind, aligned, plain)
