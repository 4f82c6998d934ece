"""Rows of padding behind a vocabulary: one side has more of them, so that their number is a multiple of some other.

Megatron repeats the last row (``tools/checkpoint/saver_mcore.py``), others append zeros; only these are padding here.
Rows that were trained, or drawn at random as ``resize_token_embeddings`` does, are not: what they are is not known.
"""

from __future__ import annotations

from ckptdoctor.against.elements import Elements, Reader
from ckptdoctor.against.links import Link, row_size

# what embeddings and heads are called in transformers, Megatron, GPT-NeoX, Meta's code and llama.cpp
_VOCABULARIES = frozenset(
    {
        *("embed_tokens", "wte", "word_embeddings", "embed_in", "tok_embeddings", "token_embd"),
        *("lm_head", "output_layer", "embed_out", "output"),
    }
)
_AT_ONCE = 1 << 20  # elements


def padded(source: Elements, export: Elements) -> Link | None:
    """Return the link of all rows that both have, where one of them has more; None for what is not a vocabulary."""
    names = [each.name.split(".")[-2:-1] for each in (source, export)]
    alike = source.shape[1:] == export.shape[1:] and 0 < len(source.shape) < 3 and source.shape[0] and export.shape[0]
    if not alike or source.count == export.count or not all(_VOCABULARIES.issuperset(each) and each for each in names):
        return None
    count = min(source.count, export.count)
    return None if count % max(source.unit, export.unit) else Link(source.name, export.name, count)


def is_padding(reader: Reader, used: int) -> bool:
    """Return whether all rows from ``used`` on are zeros, or all are copies of the row before them."""
    row, total = row_size(reader.what), reader.what.shape[0]
    last = reader.numbers((used - 1) * row, row).copy()
    zeros = copies = True
    step = max(1, _AT_ONCE // row)
    for first in range(used, total, step):
        some = reader.numbers(first * row, (min(first + step, total) - first) * row).reshape(-1, row)
        zeros = zeros and not some.any()
        copies = copies and bool((some == last).all())
    return zeros or copies
