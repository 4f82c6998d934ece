"""Compares two names: what they have in common, and where the new one may mean another order of the values."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.regex import regex

Tokens = tuple[str, ...]

_WORDS = regex(r"[a-z]+")
_WHOLE = regex(r"[a-z]+|[0-9]+")
_MEANS = {
    word: said
    for said, words in {
        "q": ("query",),
        "k": ("key",),
        "v": ("value",),
        "out": ("output", "o"),
        "attn": ("attention",),
        "embed": ("embedding", "embeddings", "emb"),
        "norm": ("layernorm", "ln", "bn", "batchnorm", "normalization"),
        "fc": ("linear", "lin", "dense"),
        "conv": ("convolution", "c"),
        "enc": ("encoder",),
        "dec": ("decoder",),
        "head": ("classifier",),
    }.items()
    for word in words
}
_FILLERS = frozenset({"proj", "projection", "to", "layer", "self"})
_ROTARY = frozenset({"wq", "wk"})
_FUSED = ("qkv", "query_key_value", "in_proj", "c_attn")


def alike(old: Tokens, new: Tokens) -> bool:
    """Return whether one name is part of the other, separators aside.

    So are ``norm.1`` and ``norm1``, ``q`` and ``q_proj``.
    """
    one, other = letters(old), letters(new)
    return one in other or other in one


def of_one_kind(old: Tokens, new: Tokens) -> bool:
    """Return whether both end with words that code bases use for one another.

    So do ``query`` and ``q_proj``, ``bn1`` and ``norm``.

    Source: the tables of renames in the conversion scripts of transformers, timm and OpenMMLab.
    """
    return not _kinds(old).isdisjoint(_kinds(new))


def _kinds(tokens: Tokens) -> set[str]:
    words = _WORDS.findall(tokens[-1].casefold()) if tokens else []
    return {_MEANS.get(word, word) for word in words}.difference(_FILLERS)


def within(old: Tokens, new: Tokens) -> bool:
    """Return whether the words of one name are all among those of the other.

    ``a`` is within ``head_a``, but not within ``head_b``.
    """
    ours, theirs = (set(_WHOLE.findall(".".join(name).casefold())) for name in (old, new))
    return bool(ours and theirs) and (ours <= theirs or theirs <= ours)


def letters(tokens: Tokens) -> str:
    """Return a name without separators and capitals."""
    return "".join(filter(str.isalnum, "".join(tokens))).casefold()


def other_layout(old: Tokens, new: Tokens) -> bool:
    """Return whether the same part may hold its values in another order under the new name, which no shape tells.

    Rows of ``wq`` and ``wk`` are permuted where rotary embeddings are computed in another way (``q_proj``, ``k_proj``);
    fused ones are one block each, or head by head.
    """
    tokens = {*old, *new}
    return bool(tokens & _ROTARY) or any(word in token.casefold() for token in tokens for word in _FUSED)


def nearest(old: str, new: str, others: Iterable[str]) -> bool:
    """Return whether ``new`` alone among the others has the first letter of ``old``, or its number."""
    return kin_of(old, others) == new


def kin_of(old: str, others: Iterable[str]) -> str | None:
    """Return the only one of the others with the first letter of ``old``, or else with its number."""
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
