"""What two names have in common, and where a new name may mean another order of the values."""

from __future__ import annotations

from collections.abc import Iterable

Tokens = tuple[str, ...]

_ROTARY = frozenset({"wq", "wk"})
_FUSED = ("qkv", "query_key_value", "in_proj", "c_attn")


def alike(old: Tokens, new: Tokens) -> bool:
    """Whether one name is part of the other, separators aside: ``norm.1`` and ``norm1``, ``q`` and ``q_proj``."""
    one, other = letters(old), letters(new)
    return one in other or other in one


def letters(tokens: Tokens) -> str:
    """A name without separators and capitals."""
    return "".join(filter(str.isalnum, "".join(tokens))).casefold()


def other_layout(old: Tokens, new: Tokens) -> bool:
    """Whether the same part may hold its values in another order under the new name, which no shape tells.

    Rows of ``wq`` and ``wk`` are permuted where rotary embeddings are computed in another way (``q_proj``, ``k_proj``);
    fused ones are one block each, or head by head.
    """
    tokens = {*old, *new}
    return bool(tokens & _ROTARY) or any(word in token.casefold() for token in tokens for word in _FUSED)


def nearest(old: str, new: str, others: Iterable[str]) -> bool:
    """Whether ``new`` alone among the others has the first letter of ``old``, or its number."""
    return kin_of(old, others) == new


def kin_of(old: str, others: Iterable[str]) -> str | None:
    """The only one of the others with the first letter of ``old``, or else with its number."""
    found = list(others)
    for trait in (_letter, _number):
        kin = [each for each in found if trait(each) == trait(old)] if trait(old) else []
        if len(kin) == 1:
            return kin[0]
    return None


def _letter(token: str) -> str:
    return token[:1]


def _number(token: str) -> str:
    return "".join(filter(str.isdecimal, token))
