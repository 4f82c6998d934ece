"""What edits of tensors change, in words: tensors that change alike are told together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Tensor, show_path
from ckptdoctor.edits import Edit, Fill, Fuse, Reshape, Split, Transpose
from ckptdoctor.edits.applied.optimizers_left import left_behind
from ckptdoctor.edits.kinds import Compute, Dequantize, FuseNorm, Tie
from ckptdoctor.edits.steps import Change
from ckptdoctor.edits.tensors import ENTERING, TENSOR_EDITS, TensorEdit, new_keys, place_of, sources

_KINDS: dict[type, str] = {
    Reshape: "reshape",
    Transpose: "transpose",
    Fill: "fill",
    Split: "split",
    Fuse: "fuse",
    FuseNorm: "fuse-norm",
    Dequantize: "dequantize",
    Compute: "compute",
    Tie: "tie",
}

Pairs = list[tuple[str, str]]


def arranging_told(checkpoint: Checkpoint, run: Sequence[Edit], after: Checkpoint) -> Iterator[Change]:
    """What these edits of tensors change in ``checkpoint`` to give ``after``."""
    edits = [edit for edit in run if isinstance(edit, TENSOR_EDITS)]
    wanted = {path for edit in edits for path in [*sources(edit), *_targets(edit)]}
    old = {tensor.path: tensor for tensor in checkpoint.tensors if tensor.path in wanted}
    new = {tensor.path: tensor for tensor in after.tensors if tensor.path in wanted}
    groups: dict[tuple[object, ...], list[Pairs]] = {}
    for edit in edits:
        before, behind = [old[path] for path in sources(edit)], [new[path] for path in _targets(edit)]
        shapes = (
            _place(edit),
            _filling(edit),
            *(each.shape for each in before),
            None,
            *(each.shape for each in behind),
        )
        groups.setdefault(shapes, []).append(list(_pairs(edit, before, behind)))
    for (place, *_), alike in groups.items():
        pairs = tuple([pair for each in alike for pair in each])
        assert isinstance(place, tuple)
        yield Change(_KINDS[type(edits[0])], pairs, ((len(alike), "tensor"),), place or None)
    yield from left_behind(checkpoint, run)


def _filling(edit: TensorEdit) -> str:
    return f"{edit.dtype} {edit.value}" if isinstance(edit, Fill) else ""


def _place(edit: TensorEdit) -> KeyPath:
    return place_of(edit) if isinstance(edit, ENTERING) else edit.path[:-1]


def _targets(edit: TensorEdit) -> list[KeyPath]:
    """The tensors that the edit makes."""
    return [(*_place(edit), key) for key in new_keys(edit)] if isinstance(edit, ENTERING) else [edit.path]


def _pairs(edit: TensorEdit, before: Sequence[Tensor], behind: Sequence[Tensor]) -> Iterator[tuple[str, str]]:
    """Names with shapes before and after: all that go, then all that come."""
    if isinstance(edit, Fill):
        yield "", f"{behind[0].key} {list(edit.shape)} {edit.dtype} = {edit.value}"
        return
    if isinstance(edit, Tie):
        yield "", f"{behind[0].key} {list(behind[0].shape)} = {before[0].key}"
        return
    depth = len(_place(edit))
    olds, news = (
        [f"{show_path(each.path[depth:])} {list(each.shape)}" for each in tensors] for tensors in (before, behind)
    )
    for old in olds[:-1]:
        yield old, ""
    yield olds[-1], news[0]
    for new in news[1:]:
        yield "", new
