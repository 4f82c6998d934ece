"""The file is one of several slices of a model that was split for tensor parallelism.

Meaning
    ``consolidated.00.pth`` and ``consolidated.01.pth`` hold the same names, and each has a part of most matrices: rows
    of some, columns of others. No file alone is the model.

Why it matters
    A model that loads one of them has tensors of the wrong shapes; each slice must be joined along its own dimension.

Symptoms
    Loading a checkpoint for MP=2 but world size is 1
    size mismatch for tok_embeddings.weight

Detection
    The names in the folder; with a target by the shapes: every name of it is there, and most matrices are shorter along
    one dimension, some along the first and some along the second, all by the same factor.

Repair
    None: the file does not record the dimension along which a tensor was split. Use the converter of the model's own
    library, such as transformers' convert_llama_weights_to_hf.py, or start that many processes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.tensor_parallel import slice_of
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.sharding.rank_files import slices
from ckptdoctor.rules.when import file_begins

_SLICE = {"layers.0.attention.wq.weight": T((4, 8)), "norm.weight": T((8,))}
_JOIN = "Join the slices with the converter of the model's own library, or start that many processes."
_LAYERS = ("wq", "wk", "wv")


def _model(heads: int) -> dict[str, object]:
    """Return attention with so many heads: rows of some matrices belong to one, columns of others."""
    made: dict[str, object] = {f"layers.0.{name}.weight": T((4 * heads, 16)) for name in _LAYERS}
    return {**made, "layers.0.wo.weight": T((16, 4 * heads)), "norm.weight": T((16,))}


MESSAGES = (
    Message(
        ("Loading a checkpoint for MP=",),
        "the checkpoint is split into {parts} parts, one for each rank of tensor parallelism, and this run has {ranks}",
        (Way("start that many processes", "torchrun --nproc-per-node {parts} ..."),),
        then=r"(?P<parts>\d{1,9})butworldsizeis(?P<ranks>\d{1,9})",
    ),
)
SICK = (
    Example("the first of two", _SLICE, name="consolidated.00.pth", beside={"consolidated.01.pth": b"PK"}),
    Example("a quarter by its shapes", _model(1), like=_model(4)),
)
HEALTHY = (
    Example("the only one", _SLICE, name="consolidated.00.pth", beside={"params.json": b"{}"}),
    Example("all of it", _model(4), like=_model(4)),
)


@rule("X802", "tp-shards", Severity.ERROR, when=file_begins("consolidated", "model_part"))
def tp_shards(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report one slice among several."""
    named = slices((subject.checkpoint if isinstance(subject, Comparison) else subject).path)
    if named is not None:
        number = len(named.ranks)
        yield Problem(
            message=f"this is slice {named.rank} of a model that was split into {number} for tensor parallelism",
            cause=f"The rest of each matrix is in {wording.plural(number - 1, 'more file')} next to it.",
            torch_says=(f"Loading a checkpoint for MP={number} but world size is 1",),
            advice=_JOIN,
        )
        return
    shown = slice_of(subject) if isinstance(subject, Comparison) else None
    if shown is None or not isinstance(subject, Comparison):
        return
    here, whole = subject.renamed.here[shown.key].shape, subject.reference.tensors[shown.key].shape
    yield Problem(
        message=f"{wording.plural(shown.split, 'tensor')} of {subject.reference.source} are {shown.count} times as "
        f"long along one dimension as here: this is one of {shown.count} slices of it",
        cause="The model was split for tensor parallelism: each process saved its rows of some matrices, and its "
        "columns of others.",
        torch_says=(wording.mismatch_line(shown.key, here, whole),),
        advice=_JOIN,
        keys=tuple([subject.renamed.here[key].path for key in subject.renamed.mismatched]),
    )
