"""Applies to places what each kind of edit says about the contents: one function for each, chosen by class.

A tensor in a place is the source's, or has what an edit gave it; its storage stands for a ``Store``, which says what
became of that storage. Nothing in here is shared with what plans a repair or applies it to nouns or bytes, except for
the edits, what they say of themselves (how module prefixes follow keys, which keys come and go, where new ones are),
and facts that read: what an array holds, which strings Python 2 wrote, what rebuilds a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ckptdoctor.account import keys, tensors
from ckptdoctor.account.contents import Account
from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.edits import (
    Cast,
    Clone,
    Compact,
    Convert,
    Densify,
    Drop,
    Edit,
    Fill,
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
    Reshape,
    Retag,
    SetMetadata,
    SetSuffix,
    TakeRoot,
    TextMetadata,
    Transpose,
    Truncate,
    Unwrap,
    WriteIndex,
)
from ckptdoctor.edits.tensors import runs

SAYS: dict[type, Callable[[Account, Any], None]] = {
    Rename: keys.rename,
    RenameModules: keys.rename_modules,
    Renumber: keys.renumber,
    Reorder: keys.reorder,
    Retag: tensors.retag,
    MoveToCpu: tensors.move_to_cpu,
    Drop: keys.drop,
    TakeRoot: keys.take_root,
    Compact: tensors.compact,
    MakeContiguous: tensors.make_contiguous,
    Clone: tensors.make_contiguous,
    Densify: tensors.densify,
    Replace: keys.replaced,
    MakeTensors: tensors.make_tensors,
    Repickle: keys.repickle,
    Flatten: keys.flatten,
    Reshape: tensors.reshape,
    Transpose: tensors.transpose,
    Cast: tensors.cast,
    SetMetadata: keys.set_metadata,
    TextMetadata: keys.text_metadata,
    SetSuffix: keys.set_suffix,
    Truncate: keys.truncate,
    Convert: keys.convert,
    Unwrap: tensors.unwrap,
    WriteIndex: keys.write_index,
}


def account_of(source: Checkpoint, edits: Iterable[Edit]) -> Account:
    """Return the contents after the edits, one after another.

    Raises UnaccountedError for what is named and not there.
    """
    account = Account(source)
    for run in runs(edits):
        if isinstance(run[0], Fill):
            tensors.fill(account, [edit for edit in run if isinstance(edit, Fill)])
        elif isinstance(run[0], tensors.MAKING):
            tensors.make(account, [edit for edit in run if isinstance(edit, tensors.MAKING)])
        else:
            for edit in run:
                SAYS[type(edit)](account, edit)
    return account
