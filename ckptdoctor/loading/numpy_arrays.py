"""Makes arrays of NumPy: the same elements as those of torch, bit for bit, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ckptdoctor.checkpoint import Tensor, show_path
from ckptdoctor.checkpoint.dtypes import BY_NAME, NUMPY_ELEMENTS
from ckptdoctor.checkpoint.tensor import storage_span
from ckptdoctor.crash import installing
from ckptdoctor.errors import MissingPackageError
from ckptdoctor.loading.inert import Inert
from ckptdoctor.loading.tensors import TensorMaker, damaged, judged
from ckptdoctor.noun import replace

_OWN = frozenset(NUMPY_ELEMENTS.values())
# what the package ml_dtypes adds to NumPy, for JAX, TensorFlow and whoever else imports it: safetensors gives the same
_ADDED = frozenset(
    ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
_CODES = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}


class NumpyArrays(TensorMaker):
    """``framework="np"``. What NumPy has no arrays of is ``Inert``, with its parts: sparse, quantized, without values.

    So is what has a dtype that neither NumPy nor ml_dtypes has, with its bytes.

    Arrays that share memory share it still; conjugates are computed, as NumPy has no lazy ones.
    """

    def _bare(self, tensor: Tensor) -> Any:
        name = tensor.dtype.name
        lacks = name not in _OWN and name not in _ADDED and tensor.dtype.kind != "quantized"
        if lacks and tensor.chunks:
            return replace(self._inert(tensor), items=[self.make(chunk) for _, chunk in tensor.chunks])
        if lacks and tensor.layout == "strided" and not tensor.parts and (tensor.storage or tensor.values) is not None:
            return replace(self._inert(tensor), items=[self._strided(_in_numpy(tensor))])
        return super()._bare(tensor)

    def _strided(self, tensor: Tensor) -> Any:
        import numpy as np

        dtype, data = _dtype(tensor), self._bytes(tensor)
        with judged(tensor):
            if 0 in tensor.shape:
                return np.empty(tensor.shape, dtype)
            strides = [step * dtype.itemsize for step in tensor.stride]
            return np.ndarray(tensor.shape, dtype, data, tensor.offset * dtype.itemsize, strides)

    def _dressed(self, tensor: Tensor, made: Any) -> Any:
        import numpy as np

        details = dict(tensor.details)
        if details.get("conj"):
            made = np.conj(made)
        return np.negative(made) if details.get("neg") else made

    def _empty(self, tensor: Tensor) -> Any:
        import numpy as np

        dtype = _dtype(tensor)
        with judged(tensor):
            return np.empty(tensor.shape, dtype)

    def _copy(self, place: Any, piece: Any) -> None:
        place[...] = piece

    def _meta(self, tensor: Tensor) -> Inert:
        return self._inert(tensor)

    def _sparse(self, tensor: Tensor) -> Inert:
        return self._inert(tensor)

    def _quantized(self, tensor: Tensor) -> Inert:
        """Return the integers as they are stored, in front of scales and zero points where each channel has its own."""
        made = self._inert(tensor)
        if tensor.storage is None:
            return made
        codes = BY_NAME[_CODES.get(tensor.dtype.name, tensor.dtype.name)]
        return replace(made, items=[self._strided(replace(tensor, dtype=codes)), *made.items])

    def size(self, sizes: Sequence[Any]) -> tuple[int, ...]:
        """Return a tuple, which torch.Size is one of."""
        if not all(isinstance(each, int) for each in sizes):
            raise TypeError("a size is not a number")
        return tuple(sizes)

    def dtype(self, name: str) -> Any:
        """Return the name: NumPy has not all of them."""
        return Inert(f"torch.{name}")

    def device(self, name: str) -> None:
        """NumPy has no devices."""


def _in_numpy(tensor: Tensor) -> Tensor:
    """Return the same bytes with a dtype that NumPy has: two halves for a complex number, or else plain bytes."""
    if tensor.dtype.name == "complex32":
        shape, stride = (*tensor.shape, 2), (*[2 * step for step in tensor.stride], 1)
        return replace(tensor, dtype=BY_NAME["float16"], shape=shape, stride=stride, offset=2 * tensor.offset)
    size = max(1, tensor.dtype.bits // 8)
    if tensor.dtype.bits == 8 or 0 in tensor.shape:
        return replace(tensor, dtype=BY_NAME["uint8"])
    first, stop = storage_span(tensor)
    if tensor.dtype.bits < 8:  # several elements are in one byte
        first, stop = first * tensor.dtype.bits // 8, -(-stop * tensor.dtype.bits // 8)
    else:
        first, stop = first * size, stop * size
    return replace(tensor, dtype=BY_NAME["uint8"], shape=(stop - first,), stride=(1,), offset=first)


def _dtype(tensor: Tensor) -> Any:
    """Return the dtype of this name in NumPy, or in ml_dtypes.

    Raises MissingPackageError where that is not installed, and DamagedError for what neither has.
    """
    import numpy as np

    name = tensor.dtype.name
    if name in _OWN:
        return np.dtype(name)
    if name not in _ADDED:  # in which quantized integers are packed
        raise damaged(tensor, f'has the dtype {name}, which NumPy lacks; framework="pt" may load it.')
    try:
        import ml_dtypes
    except ModuleNotFoundError:
        raise MissingPackageError(
            f"{show_path(tensor.path)} has the dtype {name}, which NumPy lacks. ml_dtypes adds it: {installing()} "
            'ml_dtypes; or load with framework="pt".'
        ) from None
    found = getattr(ml_dtypes, name, None)
    if found is None:
        raise MissingPackageError(
            f"{show_path(tensor.path)} has the dtype {name}, which this ml_dtypes lacks: {installing()} --upgrade "
            "ml_dtypes"
        )
    return np.dtype(found)
