"""What torch's pickles mean: from a pickle graph to the nouns of a checkpoint, and edits back on the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ckptdoctor.formats.torch_objects.contents import Contents, StorageTable
from ckptdoctor.formats.torch_objects.interpret import interpret
from ckptdoctor.formats.torch_objects.plans import Edited, Numbering, StoragePlan

if TYPE_CHECKING:  # what only repairs need is not loaded to check a file
    from ckptdoctor.edits import Edit
    from ckptdoctor.pickles import Pickle

__all__ = ["Contents", "Edited", "Numbering", "StoragePlan", "StorageTable", "edit", "interpret"]


def edit(
    pickle: Pickle, contents: Contents, edits: Sequence[Edit], *, renumber: Numbering = Numbering.AS_NEEDED
) -> Edited:
    """Apply the edits to the graph of ``pickle``: see ``torch_objects.apply``, which only repairs import."""
    from ckptdoctor.formats.torch_objects.apply import apply

    return apply(pickle, contents, edits, renumber=renumber)
