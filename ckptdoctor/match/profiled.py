"""The buffers that ``thop.profile`` leaves in a model."""

from __future__ import annotations

from ckptdoctor.checkpoint import StateDict, Tensor
from ckptdoctor.facts import names


def profiler_counters(state_dict: StateDict) -> tuple[Tensor, ...]:
    """Its counters: one float64 each, on at least half as many modules as have tensors of their own; or none."""
    if not names.mentions(state_dict, names.COUNTERS):
        return ()
    found = [tensor for tensor in state_dict.tensors if tensor.key.endswith(names.COUNTERS) and _is_count(tensor)]
    gone = set(map(id, found))
    owners = {_module(tensor) for tensor in state_dict.tensors if id(tensor) not in gone}
    return tuple(found) if owners and 2 * len({_module(tensor) for tensor in found}) >= len(owners) else ()


def _is_count(tensor: Tensor) -> bool:
    return names.is_counter(tensor.key) and tensor.dtype.name == "float64" and tensor.numel == 1


def _module(tensor: Tensor) -> str:
    return tensor.key.rpartition(".")[0]
