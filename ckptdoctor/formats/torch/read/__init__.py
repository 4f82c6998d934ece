"""What torch's pickles mean: from a pickle graph to the nouns of a checkpoint, and back to the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ckptdoctor.formats.torch.patch.plans import Edited, Numbering, StoragePlan
from ckptdoctor.formats.torch.read.contents import Contents, StorageTable
from ckptdoctor.formats.torch.read.interpret import interpret, storages_in

if TYPE_CHECKING:  # what only repairs need is not loaded to check a file
    from ckptdoctor.checkpoint import Storage
    from ckptdoctor.edits.applied.wanted import Wanted
    from ckptdoctor.pickles import Pickle

__all__ = ["Contents", "Edited", "Numbering", "StoragePlan", "StorageTable", "change", "interpret", "storages_in"]


def change(
    pickle: Pickle, storages: Sequence[Storage], wanted: Wanted, *, renumber: Numbering = Numbering.AS_NEEDED
) -> Edited:
    """Let the graph of ``pickle`` say what is wanted: see ``torch.patch.reconcile``, which only repairs import."""
    from ckptdoctor.formats.torch.patch.reconcile import reconcile

    return reconcile(pickle, storages, wanted, renumber=renumber)
