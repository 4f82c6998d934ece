"""What the contents are after edits, worked out on the nouns alone, and what is said of it.

The formats write whatever comes of it (``edits.applied.wanted``); that nothing else comes of it is held by an account
that shares no code with this (``account``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.edits import (
    Cast,
    Clone,
    Compact,
    Convert,
    Densify,
    Drop,
    Edit,
    Flatten,
    MakeContiguous,
    MakeTensors,
    MoveToCpu,
    Rename,
    RenameModules,
    Renumber,
    Reorder,
    Repickle,
    Replace,
    Retag,
    SetMetadata,
    SetSuffix,
    TakeRoot,
    TextMetadata,
    Truncate,
    Unwrap,
    WriteIndex,
)
from ckptdoctor.edits.applied import container
from ckptdoctor.edits.applied.act import Act
from ckptdoctor.edits.applied.arranging import arrange
from ckptdoctor.edits.applied.arranging_told import arranging_told
from ckptdoctor.edits.applied.array_tensors import MAKE_TENSORS
from ckptdoctor.edits.applied.casting import CAST
from ckptdoctor.edits.applied.compacting import COMPACT, MAKE_CONTIGUOUS
from ckptdoctor.edits.applied.densifying import DENSIFY
from ckptdoctor.edits.applied.flattening import FLATTEN
from ckptdoctor.edits.applied.moving import MOVE_TO_CPU
from ckptdoctor.edits.applied.removing import DROP
from ckptdoctor.edits.applied.renaming import RENAME, RENAME_MODULES
from ckptdoctor.edits.applied.renumbering import RENUMBER, REORDER
from ckptdoctor.edits.applied.repickling import REPICKLE
from ckptdoctor.edits.applied.replacing import REPLACE, TAKE_ROOT, replace_values
from ckptdoctor.edits.applied.retagging import RETAG
from ckptdoctor.edits.applied.unwrapping import UNWRAP
from ckptdoctor.edits.kinds import Tie
from ckptdoctor.edits.steps import Change
from ckptdoctor.edits.tensors import TENSOR_EDITS, runs

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
    """The checkpoint after the edits, one after another; its paths, tensors, storages and state dicts agree.

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
    """What the edits, applied at once (``edits.tensors.runs``), change in ``checkpoint`` to give ``after``."""
    if isinstance(run[0], TENSOR_EDITS):
        yield from arranging_told(checkpoint, run, after)
    else:
        for edit in run:
            yield from ACTS[type(edit)].told(checkpoint, edit, after)


def without_returning(said: Iterable[Change], edits: Iterable[Edit]) -> Iterator[Change]:
    """The same, but that nothing is called dropped which a tie of the same step brings back under its name."""
    back = {(edit.path[:-1], edit.key) for edit in edits if isinstance(edit, Tie)}
    for change in said:
        pairs = tuple([pair for pair in change.pairs if (change.place or (), pair[0]) not in back])
        if change.kind != "drop" or len(pairs) == len(change.pairs):
            yield change
        elif pairs:
            yield replace(change, pairs=pairs, counts=((len(pairs), "entry"),))
