"""Works out what the contents are after edits, on the nouns alone, and says what was changed.

The formats write whatever comes of it (``edits.applied.wanted``); that nothing else comes of it is held by an account
that shares no code with this (``account``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Tensor, show_path
from ckptdoctor.edits import (
    Cast,
    Clone,
    Compact,
    Compute,
    Convert,
    Densify,
    Dequantize,
    Drop,
    Edit,
    Fill,
    Flatten,
    Fuse,
    FuseNorm,
    MakeContiguous,
    MakeTensors,
    MoveToCpu,
    Rename,
    RenameModules,
    Renumber,
    Reorder,
    Repickle,
    Replace,
    Reshape,
    Retag,
    SetMetadata,
    SetSuffix,
    Split,
    TakeRoot,
    TextMetadata,
    Tie,
    Transpose,
    Truncate,
    Unwrap,
    WriteIndex,
)
from ckptdoctor.edits.applied import container
from ckptdoctor.edits.applied.act import Act
from ckptdoctor.edits.applied.arranging import arrange
from ckptdoctor.edits.applied.array_tensors import MAKE_TENSORS
from ckptdoctor.edits.applied.casting import CAST
from ckptdoctor.edits.applied.compacting import COMPACT, MAKE_CONTIGUOUS
from ckptdoctor.edits.applied.densifying import DENSIFY
from ckptdoctor.edits.applied.flattening import FLATTEN
from ckptdoctor.edits.applied.moving import MOVE_TO_CPU
from ckptdoctor.edits.applied.optimizers_left import left_behind
from ckptdoctor.edits.applied.removing import DROP
from ckptdoctor.edits.applied.renaming import RENAME, RENAME_MODULES
from ckptdoctor.edits.applied.renumbering import RENUMBER, REORDER
from ckptdoctor.edits.applied.repickling import REPICKLE
from ckptdoctor.edits.applied.replacing import REPLACE, TAKE_ROOT, replace_values
from ckptdoctor.edits.applied.retagging import RETAG
from ckptdoctor.edits.applied.unwrapping import UNWRAP
from ckptdoctor.edits.fix import Change
from ckptdoctor.edits.tensors import ENTERING, TENSOR_EDITS, TensorEdit, new_keys, place_of, runs, sources
from ckptdoctor.noun import replace

# every kind of edit but those of tensors (``edits.tensors``), which are applied several at once
ACTS: dict[type[Edit], Act] = {
    Rename: RENAME,
    RenameModules: RENAME_MODULES,
    Renumber: RENUMBER,
    Reorder: REORDER,
    Retag: RETAG,
    MoveToCpu: MOVE_TO_CPU,
    Drop: DROP,
    TakeRoot: TAKE_ROOT,
    Replace: REPLACE,
    Compact: COMPACT,
    MakeContiguous: MAKE_CONTIGUOUS,
    Clone: MAKE_CONTIGUOUS,
    Densify: DENSIFY,
    Cast: CAST,
    MakeTensors: MAKE_TENSORS,
    Repickle: REPICKLE,
    Flatten: FLATTEN,
    Unwrap: UNWRAP,
    SetMetadata: container.SET_METADATA,
    TextMetadata: container.TEXT_METADATA,
    SetSuffix: container.SET_SUFFIX,
    Truncate: container.TRUNCATE,
    Convert: container.CONVERT,
    WriteIndex: container.WRITE_INDEX,
}


def apply(checkpoint: Checkpoint, edits: Iterable[Edit]) -> Checkpoint:
    """Return the checkpoint after the edits, one after another; its paths, tensors, storages and state dicts agree.

    Raises RefusedError, with both names, where two keys would get one, and for edits of what is not there.
    """
    for run in runs(edits):
        if isinstance(run[0], TENSOR_EDITS):
            checkpoint = arrange(checkpoint, run)
        elif isinstance(run[0], Replace):
            checkpoint = replace_values(checkpoint, run)
        else:
            checkpoint = ACTS[type(run[0])].apply(checkpoint, run[0])
    return checkpoint


def told(checkpoint: Checkpoint, run: tuple[Edit, ...], after: Checkpoint) -> Iterator[Change]:
    """Yield what the edits, applied at once (``edits.tensors.runs``), change in ``checkpoint`` to give ``after``."""
    if isinstance(run[0], TENSOR_EDITS):
        yield from arranging_told(checkpoint, run, after)
    else:
        for edit in run:
            yield from ACTS[type(edit)].told(checkpoint, edit, after)


def without_returning(said: Iterable[Change], edits: Iterable[Edit]) -> Iterator[Change]:
    """Yield the same, but that nothing is called dropped which a tie of the same step brings back under its name."""
    back = {(edit.path[:-1], edit.key) for edit in edits if isinstance(edit, Tie)}
    for change in said:
        pairs = tuple([pair for pair in change.pairs if (change.place or (), pair[0]) not in back])
        if change.kind != "drop" or len(pairs) == len(change.pairs):
            yield change
        elif pairs:
            yield replace(change, pairs=pairs, counts=((len(pairs), "entry"),))


# ---- what edits of tensors change, in words: tensors that change alike are told together


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
    """Yield what these edits of tensors change in ``checkpoint`` to give ``after``."""
    edits = [edit for edit in run if isinstance(edit, TENSOR_EDITS)]
    wanted = {path for edit in edits for path in [*sources(edit), *_targets(edit)]}
    old = {tensor.path: tensor for tensor in checkpoint.tensors if tensor.path in wanted}
    new = {tensor.path: tensor for tensor in after.tensors if tensor.path in wanted}
    groups: dict[tuple[object, ...], list[Pairs]] = {}
    for edit in edits:
        before, behind = [old[path] for path in sources(edit)], [new[path] for path in _targets(edit)]
        shapes = (
            _place(edit),
            f"{edit.dtype} {edit.value}" if isinstance(edit, Fill) else "",
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


def _place(edit: TensorEdit) -> KeyPath:
    return place_of(edit) if isinstance(edit, ENTERING) else edit.path[:-1]


def _targets(edit: TensorEdit) -> list[KeyPath]:
    """Return the tensors that the edit makes."""
    return [(*_place(edit), key) for key in new_keys(edit)] if isinstance(edit, ENTERING) else [edit.path]


def _pairs(edit: TensorEdit, before: Sequence[Tensor], behind: Sequence[Tensor]) -> Iterator[tuple[str, str]]:
    """Yield names with shapes before and after: all that go, then all that come."""
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
