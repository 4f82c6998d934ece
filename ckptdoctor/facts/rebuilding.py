"""The functions of torch that rebuild tensors: which one makes the tensor itself, whatever wraps it.

Source: ``torch.Tensor._reduce_ex_internal``.
"""

from __future__ import annotations

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.dtypes import BY_STORAGE_CLASS

UTILS = "torch._utils._rebuild_"

# these move what they rebuild on the CPU to a device without storages: a CPU tensor, or an array of NumPy
FROM_CPU = f"{UTILS}device_tensor_from_cpu_tensor"
FROM_ARRAY = frozenset({f"{UTILS}device_tensor_from_numpy", f"{UTILS}xla_tensor"})
MOVERS = FROM_ARRAY | {FROM_CPU}

# what torch or NumPy names for a tensor that is saved as an array
OF_ARRAYS = frozenset(
    {
        *("numpy._core.multiarray._reconstruct", "numpy.core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype"),
        *FROM_ARRAY,
    }
)
# and for one without elements, where the pickle is of protocol 2
OF_EMPTY_ARRAYS = frozenset({"builtins.bytes"})

_TYPED = frozenset(BY_STORAGE_CLASS.values())


def on_cpu(tensor: Tensor) -> str:
    """The function that rebuilds such a tensor of the CPU, for tensors whose kind is known."""
    if tensor.layout != "strided":
        return f"{UTILS}sparse_tensor"
    if tensor.storage is None and tensor.values is None:
        return f"{UTILS}meta_tensor_no_storage"
    if any(name == "scheme" for name, _ in tensor.details):
        return f"{UTILS}qtensor"
    return f"{UTILS}tensor_v2" if tensor.dtype in _TYPED else f"{UTILS}tensor_v3"
