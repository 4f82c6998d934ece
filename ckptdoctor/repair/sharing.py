"""Gives tensors that are one memory storages of their own, and makes one memory of tensors with the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Role, StateDict, Tensor, show_path
from ckptdoctor.checkpoint.sharing import compared, digest, is_readable, is_telling, probe, shared
from ckptdoctor.checkpoint.tensor import is_contiguous
from ckptdoctor.edits import Clone, Drop, Edit, SetMetadata, Tie
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.names import EMBEDDING
from ckptdoctor.wording import format_name

_SAFETENSORS, _TORCH = "safetensors", ("torch zip", "torch legacy")
_MOST = 256  # names of one matrix, or names that a file notes
_DIMENSIONS = 2  # of a weight that nobody makes twice by chance: biases and norms begin with the same numbers
# what tensors must have in common to be one
_ALIKE = ("shape", "device", "requires_grad", "is_parameter", "rebuild", "subclass")


def clone_edits(checkpoint: Checkpoint) -> list[Edit]:
    """Return storages of their own for tensors of one state dict that share theirs; of tied ones, the first keeps it.

    Raises RefusedError, with the name, for one that is not a plain tensor.
    """
    groups = [group for state_dict in _weights(checkpoint) for group in shared(state_dict.tensors)]
    wanted = [tensor for group in groups for tensor in (group.tensors[1:] if group.tied else group.tensors)]
    odd = next((each for each in wanted if each.parts or each.layout != "strided" or each.dtype.bits % 8), None)
    if odd is not None:
        raise RefusedError(f"{show_path(odd.path)} is not a plain tensor, and cannot be cloned.")
    paths = tuple(dict.fromkeys([each.path for each in wanted]))
    return [Clone(paths)] if paths else []


def tie_edits(checkpoint: Checkpoint) -> list[Edit]:
    """Return one memory for weights of one state dict whose bytes are the same: every byte is read to tell.

    In torch's files the others become views of the first, right behind it; a safetensors file keeps the first, and
    its metadata says which names are gone, as ``safetensors.torch.save_model`` does. The first is the input embedding
    where there is one. Raises RefusedError for formats in which that cannot be.
    """
    if checkpoint.format != _SAFETENSORS and checkpoint.format not in _TORCH:
        raise RefusedError(f"In a {format_name(checkpoint.format)} file tensors cannot be tied; convert it first.")
    groups = [group for state_dict in _weights(checkpoint) for group in twins(checkpoint, state_dict.tensors)]
    if not groups:
        return []
    # the second names of all, then the third: edits of different tensors are applied at once
    names = [pair for rank in zip_longest(*map(_names, groups)) for pair in rank if pair is not None]
    torch = checkpoint.format in _TORCH
    if max(map(len, groups)) > _MOST if torch else len(names) > _MOST:
        raise RefusedError(f"More than {_MOST:,} tensors have the same bytes as others; those are not tied weights.")
    drop = Drop(tuple([other.path for _, other in names]))
    ties = [Tie(owner.path, other.key) if torch else SetMetadata(other.key, owner.key) for owner, other in names]
    return [drop, *ties]


def _names(group: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    return ((group[0], other) for other in group[1:])


def twins(checkpoint: Checkpoint, tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Yield groups of tensors with the same bytes on different storages, the one that stays first.

    Only matrices count, and only those whose numbers differ: others are the same by chance.
    """
    alike = _grouped((_kind(each), each) for each in tensors if _is_weight(each))
    if not alike:
        return
    with formats.opened(checkpoint.path) as (source, _):
        for group in alike:
            probed = ((mark, each) for each in _views(group) if is_telling(mark := probe(source, each), each))
            for likely in _grouped(probed):
                yield from map(_owner_first, _grouped((digest(source, each), each) for each in likely))


def require_twins(checkpoint: Checkpoint, edits: Sequence[Edit]) -> None:
    """Raise RefusedError where a tensor is dropped and comes back as another name of one with other bytes."""
    dropped = {path for edit in edits if isinstance(edit, Drop) for path in edit.paths}
    ties = [(edit, (*edit.path[:-1], edit.key)) for edit in edits if isinstance(edit, Tie)]
    wanted = {path: edit.path for edit, path in ties if path in dropped}
    if not wanted:
        return
    involved = {*wanted, *wanted.values()}
    found = {each.path: each for each in checkpoint.tensors if each.path in involved}
    with formats.opened(checkpoint.path) as (source, _):
        for path, owner in wanted.items():
            if path in found and owner in found and not compared(found[path], found[owner], source):
                raise RefusedError(
                    f"{show_path(path)} and {show_path(owner)} have different bytes: they are not one tensor."
                )


def _weights(checkpoint: Checkpoint) -> list[StateDict]:
    return [each for each in checkpoint.state_dicts if each.role in (Role.MODEL, Role.EMA)]


def _is_weight(tensor: Tensor) -> bool:
    plain = is_readable(tensor) and is_contiguous(tensor) and not tensor.moved and not tensor.dtype.bits % 8
    return plain and len(tensor.shape) >= _DIMENSIONS and tensor.path[-1:] == (tensor.key,)


def _kind(tensor: Tensor) -> tuple[object, ...]:
    return tensor.dtype.name, repr(tensor.details), *[getattr(tensor, name) for name in _ALIKE]


def _views(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return each view of a storage once: what is tied already need not be compared."""
    seen: dict[object, Tensor] = {}
    for each in tensors:
        assert each.storage is not None
        seen.setdefault((each.storage.key, each.offset), each)
    return list(seen.values())


def _grouped(pairs: Iterable[tuple[object, Tensor]]) -> list[list[Tensor]]:
    """Return the tensors with equal marks, where there are several."""
    found: dict[object, list[Tensor]] = {}
    for mark, tensor in pairs:
        found.setdefault(mark, []).append(tensor)
    return [group for group in found.values() if len(group) > 1]


def _owner_first(group: Sequence[Tensor]) -> list[Tensor]:
    owner = next((each for each in group if EMBEDDING.search(each.key)), group[0])
    return [owner, *[each for each in group if each is not owner]]
