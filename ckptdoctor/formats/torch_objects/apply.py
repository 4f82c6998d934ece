"""Applies edits to a pickle graph, and says which bytes make up the storages afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.edits import (
    Cast,
    Clone,
    Compact,
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
    SetSuffix,
    TakeRoot,
    Unwrap,
)
from ckptdoctor.edits.tensors import TENSOR_EDITS, runs
from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch_objects import edit_keys, edit_numbers
from ckptdoctor.formats.torch_objects.cast import cast
from ckptdoctor.formats.torch_objects.contents import Contents
from ckptdoctor.formats.torch_objects.densify import densify
from ckptdoctor.formats.torch_objects.edit_storages import StorageEdits
from ckptdoctor.formats.torch_objects.edit_tensors import edit_tensors
from ckptdoctor.formats.torch_objects.flatten import flatten
from ckptdoctor.formats.torch_objects.graph_edit import GraphEdit
from ckptdoctor.formats.torch_objects.make_tensors import make_tensors
from ckptdoctor.formats.torch_objects.plans import Edited, Numbering
from ckptdoctor.formats.torch_objects.repickle import repickle
from ckptdoctor.formats.torch_objects.to_cpu import move_to_cpu
from ckptdoctor.formats.torch_objects.unwrap import unwrap
from ckptdoctor.pickles.graph import Pickle


def apply(
    pickle: Pickle, contents: Contents, edits: Sequence[Edit], *, renumber: Numbering = Numbering.AS_NEEDED
) -> Edited:
    """Apply the edits one after another to the graph of ``pickle``, in place.

    ``renumber`` says when storages get new keys. Raises RefusedError, naming the key path, when an edit is impossible;
    the graph is then of no further use.
    """
    graph = GraphEdit(pickle)
    storages = StorageEdits(graph, contents.storages)
    for run in runs(edits):
        if isinstance(run[0], TENSOR_EDITS):
            edit_tensors(graph, storages, run)
        else:
            _apply(graph, storages, run[0])
    graph.rejoin()
    plans = storages.finish(renumber)
    graph.close()
    return Edited(plans)


def _apply(graph: GraphEdit, storages: StorageEdits, each: Edit) -> None:
    if isinstance(each, Rename):
        edit_keys.rename(graph, each)
    elif isinstance(each, RenameModules):
        edit_keys.rename_modules(graph, each)
    elif isinstance(each, Renumber):
        edit_numbers.renumber(graph, each)
    elif isinstance(each, Reorder):
        edit_numbers.reorder(graph, each)
    elif isinstance(each, Drop):
        edit_keys.drop(graph, each)
    elif isinstance(each, TakeRoot):
        edit_keys.take_root(graph, each)
    elif isinstance(each, Replace):
        edit_keys.replace(graph, each)
    elif isinstance(each, MakeTensors):
        make_tensors(graph, storages, each)
    elif isinstance(each, Repickle):
        repickle(graph, each)
    elif isinstance(each, Flatten):
        flatten(graph, each)
    elif isinstance(each, Retag):
        storages.retag(each)
    elif isinstance(each, MoveToCpu):
        move_to_cpu(graph, storages, each)
    elif isinstance(each, Unwrap):
        unwrap(graph, each)
    elif isinstance(each, Compact):
        storages.compact(each)
    elif isinstance(each, MakeContiguous):
        storages.make_contiguous(each)
    elif isinstance(each, Clone):
        storages.clone(each)
    elif isinstance(each, Densify):
        densify(graph, storages, each)
    elif isinstance(each, Cast):
        cast(graph, storages, each)
    elif isinstance(each, SetSuffix):
        pass  # the name of the file, not what is in it
    else:
        raise RefusedError(f"{type(each).__name__} is no edit of what a torch file holds.")
