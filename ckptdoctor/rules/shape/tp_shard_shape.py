"""The file is one rank's part of a model that was split by tensor parallelism.

Meaning
    Tensor parallelism splits each matrix over ranks: projections into a layer by rows, projections out of it by
    columns. Each rank saves its part (``consolidated.00.pth``, ``mp_rank_00``), with the same keys in all files.

Why it matters
    ``load_state_dict`` fails, with ``strict=False`` too; norms would load from any of the files.

Symptoms
    size mismatch for layers.0.attention.wq.weight: copying a param with shape torch.Size([2560, 5120]) from checkpoint,
    the shape in current model is torch.Size([5120, 5120]).

Detection
    Only with a reference: nearly all matrices are too small by the same whole factor, some in their rows and some in
    their columns, and the norms fit. A model that is just smaller has smaller norms; one with narrower layers has
    complete embeddings. If the file is named like a rank's, half of the matrices are enough.

Repair
    None from one file: the other ranks' files are needed too, and the dimension along which each tensor is joined.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.causes import shapes
from ckptdoctor.match.shapes.pairs import Pair
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, both_shapes, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.shapes_in_errors import pairs_for
from ckptdoctor.rules.kit.shaping import likewise, mismatch
from ckptdoctor.rules.messages import CHECK


def _llama(ranks: int, *, attention: int | None = None, width: int = 8) -> dict[str, object]:
    """Return a decoder as Meta saves it, split over ranks; ``attention`` over other ranks than the rest."""
    heads = width // (ranks if attention is None else attention)
    found: dict[str, object] = {"tok_embeddings.weight": T((11, width // (ranks if attention is None else 1)))}
    for index in range(2):
        for name in ("wq", "wk", "wv"):
            found[f"layers.{index}.attention.{name}.weight"] = T((heads, width))
        found[f"layers.{index}.attention.wo.weight"] = T((width, heads))
        found[f"layers.{index}.feed_forward.w1.weight"] = T((2 * width // ranks, width))
        found[f"layers.{index}.feed_forward.w2.weight"] = T((width, 2 * width // ranks))
        found[f"layers.{index}.attention_norm.weight"] = T((width,))
        found[f"layers.{index}.ffn_norm.weight"] = T((width,))
    found["norm.weight"] = T((width,))
    return found


SICK = (Example("one of two ranks", _llama(2), like=_llama(1)), Example("one of four ranks", _llama(4), like=_llama(1)))
HEALTHY = (
    Example("the whole model", _llama(1), like=_llama(1)),
    Example("a model half as wide", _llama(1, width=4), like=_llama(1)),
    Example("feed-forward layers half as wide", _llama(2, attention=1), like=_llama(1)),
    Example(
        "a perceptron with half the units",
        {"0.weight": T((8, 6)), "0.bias": T((8,)), "2.weight": T((3, 8)), "2.bias": T((3,))},
        like={"0.weight": T((16, 6)), "0.bias": T((16,)), "2.weight": T((3, 16)), "2.bias": T((3,))},
    ),
)


@rule("S512", "tp-shard-shape", Severity.ERROR)
def tp_shard_shape(comparison: Comparison) -> Iterator[Problem]:
    """Report one rank's part."""
    found = shapes(comparison).shards
    if found is None:
        return
    here, there = comparison.renamed.here, comparison.reference.tensors
    pairs = [Pair(key, here[key].shape, there[key].shape) for key in (*found.rows, *found.columns)]
    yield mismatch(
        comparison,
        pairs,
        f"one of {found.ranks:,} parts of {wording.plural(len(pairs), 'tensor')}: {likewise(pairs)}",
        f"{wording.plural(len(found.rows), 'tensor')} {'is' if len(found.rows) == 1 else 'are'} split by "
        f"rows and {len(found.columns):,} by columns, and the norms are complete: one rank's file of a model "
        "that was trained with tensor parallelism.",
        f"Merge the files of all {found.ranks:,} ranks with the tool of the library that saved them, and load the "
        "result.",
    )


@judges(Turn.SIZE)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Layers that tensor parallelism splits have the same part of what is wanted."""
    found = pairs_for(rest, "S512")
    change = found[0].change if found else None
    if change is not None:
        ranks = change[2] // change[1]
        meaning = (
            f"the file has 1/{ranks} of what the model expects, in one dimension ({both_shapes(found[0])}), "
            f"like the part of one of {ranks} ranks of tensor parallelism: no command completes it without "
            "the others' parts"
        )
        yield Cause(meaning, Repair.BY_HAND, (CHECK,), mismatched=[pair.key for pair in found])
