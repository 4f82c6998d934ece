"""Reads how torch would rebuild tensors: on which device, by which function, as DTensors; and states of generators.

Source of the functions: ``torch.Tensor._reduce_ex_internal``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Special, Storage, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.dtypes import BY_STORAGE_CLASS
from ckptdoctor.facts.names import RNG_STATE_LENGTHS
from ckptdoctor.noun import noun
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
    """Return the function that rebuilds such a tensor of the CPU, for tensors whose kind is known."""
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
    """Return every tensor, and those that quantized tensors and tensor subclasses are made of."""
    return tuple(_all_tensors(checkpoint)) if any(each.parts for each in checkpoint.tensors) else checkpoint.tensors


def _all_tensors(checkpoint: Checkpoint) -> Iterator[Tensor]:
    stack = list(reversed(checkpoint.tensors))
    while stack:
        tensor = stack.pop()
        yield tensor
        stack.extend(reversed(tensor.parts))


@cached_by_identity
def rng_tensors(checkpoint: Checkpoint) -> list[Tensor]:
    """Return the tensors that hold the state of a random number generator, by length, name and company.

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
    """Return the dict that a tensor is in, through lists.

    The states of all GPUs are a list next to that of the CPU.
    """
    place = path[:-1]
    while place and isinstance(path[len(place)], int):
        place = place[:-1]
    return place


def _named_rng(tensor: Tensor) -> bool:
    names = [part.text if isinstance(part, Special) else str(part) for part in tensor.path]
    return any(_RNG_NAME.search(name) for name in names)


@cached_by_identity
def moved(checkpoint: Checkpoint) -> dict[str, list[Tensor]]:
    """Return the tensors that loading moves to a device without storages, by device, in file order."""
    found: dict[str, list[Tensor]] = {}
    for tensor in all_tensors(checkpoint):
        if tensor.moved:
            found.setdefault(tensor.device, []).append(tensor)
    return found


def names_of_arrays(checkpoint: Checkpoint) -> frozenset[str]:
    """Return what the pickle names for arrays that stand for tensors of devices without storages.

    There is nothing without such.
    """
    arrays = [each for some in moved(checkpoint).values() for each in some if each.storage is None and not each.parts]
    if not arrays:
        return frozenset()
    return (
        OF_ARRAYS | OF_EMPTY_ARRAYS
        if any(each.values is not None and not each.values for each in arrays)
        else OF_ARRAYS
    )


def has_values(tensor: Tensor) -> bool:
    """Return whether the file shows plainly what the elements of a moved tensor are."""
    return tensor.storage is not None or bool(tensor.parts) or tensor.values is not None


DTENSOR = "torch.distributed.tensor.DTensor"
# the module that torch before 2.5 had it in
_DTENSORS = frozenset({DTENSOR, "torch.distributed._tensor.api.DTensor", "torch.distributed._tensor.DTensor"})
_REBUILT = "torch._tensor._rebuild_from_type"
_PARTIAL = re.compile(r"Partial$")  # _NormPartial and such among them
_MESHES = frozenset({"int32", "int64"})  # what the ranks of a mesh are saved as


@noun
class Pieces:
    """DTensors of a file: ``whole`` are those whose local part is all of the tensor."""

    whole: tuple[Tensor, ...]
    partial: tuple[Tensor, ...]


def dtensors(checkpoint: Checkpoint) -> Pieces:
    """Return the DTensors, and which of them have all their elements here."""
    found = [tensor for tensor in checkpoint.tensors if tensor.subclass in _DTENSORS]
    if not found:
        return Pieces((), ())
    summed = any(_PARTIAL.search(each.full) for each in checkpoint.globals)  # each rank holds a summand
    whole = [each for each in found if not summed and len(each.parts) == 1 and each.parts[0].shape == each.shape]
    known = {id(each) for each in whole}
    return Pieces(tuple(whole), tuple([each for each in found if id(each) not in known]))


@noun
class Wrappers:
    """The classes of DTensors that are whole, and the storages of their meshes, which no tensor shows."""

    classes: tuple[str, ...]
    storages: tuple[str, ...]


def whole_dtensors(checkpoint: Checkpoint) -> Wrappers | None:
    """Return the DTensors, where all of them are nothing but what they wrap.

    It is None where one is not, or there are none.
    """
    found = dtensors(checkpoint)
    inner = [part for tensor in found.whole for part in tensor.parts]
    if found.partial or not found.whole or any(each.is_parameter or each.requires_grad for each in inner):
        return None
    if any(not each.rebuild.startswith(_REBUILT) for each in found.whole):
        return None
    shown = {each.key for each in storages_in(checkpoint.tensors)}
    hidden = [each for each in checkpoint.storages if each.key not in shown]
    meshes = [each.key for each in hidden if each.dtype is not None and each.dtype.name in _MESHES]
    return Wrappers(tuple(sorted({each.subclass for each in found.whole if each.subclass})), tuple(meshes))


def storages_in(tensors: Iterable[Tensor]) -> Iterator[Storage]:
    """Yield the storages of tensors and of what they are made of."""
    for tensor in tensors:
        if tensor.storage is not None:
            yield tensor.storage
        yield from storages_in(tensor.parts)
