"""Counts what every report begins with: tensors, parameters, bytes, dtypes and devices of one checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from ckptdoctor.checkpoint import Checkpoint, Role, Tensor
from ckptdoctor.noun import noun


@noun
class Summary:
    """Figures of one checkpoint.

    ``parameters`` counts the elements of its model's state dicts, tied ones once; of all tensors where there is no
    model. ``bytes`` is the size of the file. ``dtypes`` and ``devices`` are how many tensors have each.
    """

    tensors: int
    parameters: int
    bytes: int
    dtypes: dict[str, int]
    devices: dict[str, int]
    globals: tuple[str, ...]
    has_model: bool


def summarise(checkpoint: Checkpoint) -> Summary:
    """Return the figures of a checkpoint."""
    models = [each.tensors for each in checkpoint.state_dicts if each.role is Role.MODEL]
    model = [tensor for tensors in models for tensor in tensors]
    return Summary(
        tensors=len(checkpoint.tensors),
        parameters=elements(model or checkpoint.tensors),
        bytes=checkpoint.size,
        dtypes=dict(Counter([tensor.dtype.name for tensor in checkpoint.tensors]).most_common()),
        devices=dict(Counter([tensor.device for tensor in checkpoint.tensors]).most_common()),
        globals=tuple(dict.fromkeys([each.full for each in checkpoint.globals])),
        has_model=bool(model),
    )


def elements(tensors: Sequence[Tensor]) -> int:
    """Return how many elements these tensors have; those with one view of one storage count once."""
    if len({tensor.storage.key for tensor in tensors if tensor.storage is not None}) == len(tensors):
        return sum([prod(tensor.shape) for tensor in tensors])
    views = {tensor.place_id or tensor.path: tensor.numel for tensor in tensors}
    return sum(views.values())


def stored_bytes(tensors: Sequence[Tensor]) -> int:
    """Return the bytes of the elements of these tensors; those with one view of one storage count once."""
    if len({tensor.storage.key for tensor in tensors if tensor.storage is not None}) == len(tensors):
        return sum([(prod(tensor.shape) * tensor.dtype.bits + 7) >> 3 for tensor in tensors])
    views = {tensor.place_id or tensor.path: tensor.nbytes for tensor in tensors}
    return sum(views.values())
