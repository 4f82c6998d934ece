"""The DTensors of a file: which of them have all their elements here, and what wraps them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ckptdoctor.checkpoint import Checkpoint, Storage, Tensor
from ckptdoctor.noun import noun

DTENSOR = "torch.distributed.tensor.DTensor"
# the module that torch before 2.5 had it in
_DTENSORS = frozenset({DTENSOR, "torch.distributed._tensor.api.DTensor", "torch.distributed._tensor.DTensor"})
_TYPED = "torch._tensor._rebuild_from_type"
_PARTIAL = re.compile(r"Partial$")  # _NormPartial and such among them
_MESHES = frozenset({"int32", "int64"})  # what the ranks of a mesh are saved as


@noun
class Pieces:
    """DTensors of a file: ``whole`` are those whose local part is all of the tensor."""

    whole: tuple[Tensor, ...]
    partial: tuple[Tensor, ...]


def dtensors(checkpoint: Checkpoint) -> Pieces:
    """The DTensors, and which of them have all their elements here."""
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
    """The DTensors, where all of them are nothing but what they wrap; None where one is not, or there are none."""
    found = dtensors(checkpoint)
    if found.partial or not found.whole or any(each.is_parameter or each.requires_grad for each in _inner(found)):
        return None
    if any(not each.rebuild.startswith(_TYPED) for each in found.whole):
        return None
    shown = {each.key for each in storages_in(checkpoint.tensors)}
    hidden = [each for each in checkpoint.storages if each.key not in shown]
    meshes = [each.key for each in hidden if each.dtype is not None and each.dtype.name in _MESHES]
    return Wrappers(tuple(sorted({each.subclass for each in found.whole if each.subclass})), tuple(meshes))


def _inner(pieces: Pieces) -> Iterator[Tensor]:
    return (part for tensor in pieces.whole for part in tensor.parts)


def storages_in(tensors: Iterable[Tensor]) -> Iterator[Storage]:
    """The storages of tensors and of what they are made of."""
    for tensor in tensors:
        if tensor.storage is not None:
            yield tensor.storage
        yield from storages_in(tensor.parts)
