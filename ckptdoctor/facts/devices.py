"""Device tags of storages, the states of random number generators, and the functions of torch that rebuild tensors.

Source of the functions: ``torch.Tensor._reduce_ex_internal``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Special, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.dtypes import BY_STORAGE_CLASS
from ckptdoctor.facts.telltale_words import RNG_STATE_LENGTHS
from ckptdoctor.regex import regex

# ---- the functions that rebuild tensors


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


# ---- which tags there are, and what carries them


CPU = "cpu"
_CPU_STATE = 5056
_RNG_NAME = regex(r"(^|[^a-z])rng|rng([^a-z]|$)|random_?state|generator_?state", re.IGNORECASE)


@cached_by_identity
def all_tensors(checkpoint: Checkpoint) -> tuple[Tensor, ...]:
    """Every tensor, and those that quantized tensors and tensor subclasses are made of."""
    return tuple(_all_tensors(checkpoint)) if any(each.parts for each in checkpoint.tensors) else checkpoint.tensors


def _all_tensors(checkpoint: Checkpoint) -> Iterator[Tensor]:
    stack = list(reversed(checkpoint.tensors))
    while stack:
        tensor = stack.pop()
        yield tensor
        stack.extend(reversed(tensor.parts))


@cached_by_identity
def rng_tensors(checkpoint: Checkpoint) -> list[Tensor]:
    """The tensors that hold the state of a random number generator, by length, name and company.

    A state that was cast to another dtype (``Optimizer.load_state_dict`` casts floating point state) counts where its
    name says what it is.
    """
    sized = [each for each in checkpoint.tensors if len(each.shape) == 1 and each.shape[0] in RNG_STATE_LENGTHS]
    sure = [each for each in sized if _is_cpu_state(each) or _named_rng(each)]
    company = {each.path[:-1] for each in sure if _is_cpu_state(each)}
    known = set(map(id, sure))
    return [each for each in sized if id(each) in known or (_is_bytes(each) and _place(each.path) in company)]


def _is_bytes(tensor: Tensor) -> bool:
    return tensor.dtype.name == "uint8"


def _is_cpu_state(tensor: Tensor) -> bool:
    return tensor.shape[0] == _CPU_STATE and _is_bytes(tensor)


def _place(path: KeyPath) -> KeyPath:
    """The dict that a tensor lies in, through lists: the states of all GPUs are a list beside that of the CPU."""
    place = path[:-1]
    while place and isinstance(path[len(place)], int):
        place = place[:-1]
    return place


def _named_rng(tensor: Tensor) -> bool:
    names = [part.text if isinstance(part, Special) else str(part) for part in tensor.path]
    return any(_RNG_NAME.search(name) for name in names)


@cached_by_identity
def moved(checkpoint: Checkpoint) -> dict[str, list[Tensor]]:
    """The tensors that loading moves to a device without storages, by device, in file order."""
    found: dict[str, list[Tensor]] = {}
    for tensor in all_tensors(checkpoint):
        if tensor.moved:
            found.setdefault(tensor.device, []).append(tensor)
    return found


def names_of_arrays(checkpoint: Checkpoint) -> frozenset[str]:
    """What the pickle names for arrays that stand for tensors of devices without storages; nothing without such."""
    arrays = [each for some in moved(checkpoint).values() for each in some if each.storage is None and not each.parts]
    if not arrays:
        return frozenset()
    return (
        OF_ARRAYS | OF_EMPTY_ARRAYS
        if any(each.values is not None and not each.values for each in arrays)
        else OF_ARRAYS
    )


def has_values(tensor: Tensor) -> bool:
    """Whether the file shows plainly what the elements of a moved tensor are."""
    return tensor.storage is not None or bool(tensor.parts) or tensor.values is not None
