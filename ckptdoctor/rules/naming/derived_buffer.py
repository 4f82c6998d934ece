"""Buffers that a model computes by itself are in the file and not in the target, or the reverse.

Meaning
    Positions 0, 1, 2 …, the frequencies of rotary embeddings, causal masks and the indices of relative positions follow
    from the model's sizes. Libraries have saved them in one version and not in the next (``persistent=False``).

Why it matters
    ``load_state_dict`` fails, although every weight is there.

Symptoms
    Unexpected key(s) in state_dict: "embeddings.position_ids".
    Missing key(s) in state_dict: "h.0.attn.bias", "h.0.attn.masked_bias", …

Detection
    Only with a reference: keys with the names that known libraries use (``position_ids``, ``inv_freq``, ``attn.bias``,
    ``masked_bias``, ``relative_position_index``, ``attn_mask``, ``causal_mask``, ``freqs_cis`` and the like), with the
    dtype and the shape that such a buffer has: an ``attn.bias`` is one only as a square mask [1, 1, n, n]. The values
    are not read.

Repair
    Buffers that the target does not expect are dropped: ``ckptdoctor fix FILE --drop '*.position_ids'``. Confirmed: the
    target makes its own. Buffers that are missing here, the target has already made: ``load_state_dict(…,
    strict=False)`` keeps them, if nothing else is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.leftovers import leftovers
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Repair
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.dropping import unexpected_problem
from ckptdoctor.rules.signs import Sign, leaf_among

_BERT = {"embeddings.word_embeddings.weight": T((9, 4)), "encoder.layer.0.weight": T((4, 4))}
_GPT = {f"h.{layer}.attn.c_attn.weight": T((4, 12)) for layer in range(2)}
_MASKS = {f"h.{layer}.attn.bias": T((1, 1, 8, 8), "uint8") for layer in range(2)} | {
    f"h.{layer}.attn.masked_bias": T(()) for layer in range(2)
}
_LLAMA = {"layers.0.q_proj.weight": T((8, 8))}
_DERIVED = leaf_among(
    r"position_ids|inv_freq|rotary_emb\.\w+|freqs|freqs_cis|masked_bias|attn\.bias|relative_position_index|attn_mask"
    r"|causal_mask"
)
SIGNS = (
    Sign(
        "buffers that the model can compute by itself (positions, rotary frequencies, masks) are saved by some versions"
        " of a library and not by others",
        Repair.LOSS,
        missing=_DERIVED,
        unexpected=_DERIVED,
        without=True,
        general=5,
    ),
)
SICK = (
    Example("positions of an older BERT", {**_BERT, "embeddings.position_ids": T((1, 16), "int64")}, like=_BERT),
    Example("causal masks of an older GPT-2", {**_GPT, **_MASKS}, like=_GPT),
    Example("causal masks that the target expects", _GPT, like={**_GPT, **_MASKS}),
    Example("rotary frequencies", {**_LLAMA, "layers.0.rotary_emb.inv_freq": T((4,))}, like=_LLAMA),
    Example(
        "indices of a Swin window",
        {"blocks.0.qkv.weight": T((6, 2)), "blocks.0.attn.relative_position_index": T((49, 49), "int64")},
        like={"blocks.0.qkv.weight": T((6, 2))},
    ),
)
HEALTHY = (
    Example("the same buffers", {**_GPT, **_MASKS}, like={**_GPT, **_MASKS}),
    Example("an attention layer's real bias", {**_GPT, "h.0.attn.bias": T((12,))}, like=_GPT),
    Example("positions that are learnt", {**_BERT, "embeddings.position_ids": T((1, 16))}, like=_BERT),
    Example("positions of each example", {**_BERT, "embeddings.position_ids": T((16, 4), "int64")}, like=_BERT),
    Example("frequencies that are learnt", {**_LLAMA, "rotary_emb.freqs": T((4,))}, like=_LLAMA),
    Example(
        "a table of relative positions",
        {"blocks.0.qkv.weight": T((6, 2)), "blocks.0.attn.relative_position_bias_table": T((169, 2))},
        like={"blocks.0.qkv.weight": T((6, 2))},
    ),
)


@rule("N419", "derived-buffer", Severity.WARNING)
def derived_buffer(comparison: Comparison) -> Iterator[Problem]:
    """Report buffers that the model works out by itself, on one side only."""
    found = leftovers(comparison)
    source = comparison.reference.source
    if found.derived:
        yield unexpected_problem(
            comparison,
            found.derived,
            f"{_follow(found.derived)} from the model's sizes, and {source} does not load {_them(found.derived)}",
            "By name, dtype and shape these are positions, frequencies, masks or indices that the target makes itself: "
            "the version of the library that saved the file kept them, the target's does not.",
        )
    missing = found.derived_missing
    if missing:
        yield Problem(
            message=f"{len(missing):,} of {wording.plural(len(comparison.reference.tensors), 'key')} of {source} "
            f"{_follow(missing)} from the model's sizes, and the file does not hold {_them(missing)}",
            cause="By name, dtype and shape these are positions, frequencies, masks or indices that the target has "
            "already made itself: it loads them from files only because its version of the library saves them.",
            torch_says=(wording.missing_line(missing),),
            advice="load_state_dict(…, strict=False) leaves them as the target made them; make sure that nothing "
            "else is missing.",
            keys=tuple([(*comparison.path, key) for key in missing]),
            location=Location(path=comparison.path),
        )


def _follow(keys: tuple[str, ...]) -> str:
    return "follows" if len(keys) == 1 else "follow"


def _them(keys: tuple[str, ...]) -> str:
    return "it" if len(keys) == 1 else "them"
