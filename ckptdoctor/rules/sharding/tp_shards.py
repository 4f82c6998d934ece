"""The file is one of several slices of a model that was split for tensor parallelism.

What it means
    ``consolidated.00.pth`` and ``consolidated.01.pth`` hold the same names, and of most matrices a part each: rows of
    some, columns of others. No file alone is the model.

Why it matters
    A model that loads one of them has tensors of the wrong shapes; each slice must be joined along its own side.

What you see
    Loading a checkpoint for MP=2 but world size is 1
    size mismatch for tok_embeddings.weight

How it is found
    The names in the folder.

Repair
    None: the side along which a tensor was split is not in the file. Use the converter of the model's own library, such
    as transformers' convert_llama_weights_to_hf.py, or start as many processes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.rank_files import slices
from ckptdoctor.findings import Severity
from ckptdoctor.rules import wording
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule

_SLICE = {"layers.0.attention.wq.weight": T((4, 8)), "norm.weight": T((8,))}
SICK = (Example("the first of two", _SLICE, name="consolidated.00.pth", beside={"consolidated.01.pth": b"PK"}),)
HEALTHY = (Example("the only one", _SLICE, name="consolidated.00.pth", beside={"params.json": b"{}"}),)


@rule("X802", "tp-shards", Severity.ERROR)
def tp_shards(checkpoint: Checkpoint) -> Iterator[Problem]:
    """One slice among several."""
    found = slices(checkpoint.path)
    if found is None:
        return
    number = len(found.ranks)
    yield Problem(
        message=f"this is slice {found.rank} of a model that was split into {number} for tensor parallelism",
        cause=f"The rest of each matrix is in {wording.count(number - 1, 'more file')} beside it.",
        torch_says=(f"Loading a checkpoint for MP={number} but world size is 1",),
        advice="Join them with the converter of the model's own library, or start as many processes.",
    )
