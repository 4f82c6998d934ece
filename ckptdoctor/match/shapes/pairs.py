"""Pairs the keys that both sides have with their two shapes, and takes keys apart into tokens and blocks."""

from __future__ import annotations

import itertools

from ckptdoctor.match.comparison import Comparison
from ckptdoctor.noun import noun

Shape = tuple[int, ...]
_DIGITS = 6  # a token of more digits is no index of a block


@noun
class Pair:
    """One key (under its name after all renames) with its shape in the checkpoint and in the reference."""

    key: str
    here: Shape
    there: Shape

    @property
    def module(self) -> str:
        """The key without its last token: ``fc`` of ``fc.weight``; nothing at the top."""
        return self.key.rpartition(".")[0]

    @property
    def leaf(self) -> str:
        """The last token of the key: ``weight``."""
        return self.key.rpartition(".")[2]

    @property
    def reversed(self) -> bool:
        """Whether one matrix is as large as the other one transposed."""
        return len(self.here) == 2 and self.here == self.there[::-1]

    @property
    def change(self) -> tuple[int, int, int] | None:
        """The one dimension that differs with its two sizes; None where more than one does, or the ranks differ."""
        if len(self.here) != len(self.there):
            return None
        differing = [(dim, a, b) for dim, (a, b) in enumerate(zip(self.here, self.there, strict=True)) if a != b]
        return differing[0] if len(differing) == 1 else None


def pairs_of(comparison: Comparison) -> list[Pair]:
    """Return the keys of different shapes, in the reference's order."""
    here, there = comparison.renamed.here, comparison.reference.tensors
    return [Pair(key, here[key].shape, there[key].shape) for key in comparison.renamed.mismatched]


def is_index(token: str) -> bool:
    """Return whether a token counts something: ``0`` … ``999999``."""
    return token.isascii() and token.isdigit() and len(token) <= _DIGITS


def block(key: str) -> tuple[str, int, str] | None:
    """Return a key as (list of blocks, index, name in it), cut at its first index: ("encoder.layer", 3, "fc.bias")."""
    start = 0
    while True:
        end = key.find(".", start)
        if end < 0:
            return None
        if is_index(key[start:end]):
            return key[: max(start - 1, 0)], int(key[start:end]), key[end + 1 :]
        start = end + 1


def words(key: str) -> list[str]:
    """Return the words of a key in lower case: ``model.embed_tokens.weight`` has model, embed, tokens and weight."""
    return key.lower().replace("_", ".").split(".")


def model_order(comparison: Comparison) -> list[str]:
    """Return the keys in the order of the model's layers, as the file has them, or else the reference.

    There are none where neither has: safetensors sorts them by name.
    """
    for keys in (list(comparison.renamed.here), list(comparison.reference.tensors)):
        if any(one > other for one, other in itertools.pairwise(keys)):
            return keys
    return []


# ---- S506: the same values under another shape, with sides of size 1 more or fewer


def same_but_for_ones(pair: Pair) -> bool:
    """Return whether both shapes differ only in dimensions of size 1.

    Then the number of elements and their order are the same.
    """
    return _squeezed(pair.here) == _squeezed(pair.there)


def loads_anyway(pair: Pair) -> bool:
    """Return whether torch silently accepts the difference: a vector of one element for a scalar.

    Source: ``torch.nn.Module._load_from_state_dict``, "Backward compatibility: loading 1-dim tensor from 0.3.*".
    """
    return pair.here == (1,) and pair.there == ()


def _squeezed(shape: Shape) -> Shape:
    return tuple([size for size in shape if size != 1])
