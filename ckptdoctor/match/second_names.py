"""Finds second names of one tensor: of a key that a target wants, of a whole module that is there twice, of models.

Source of what models are known to share: the lists of tied weights in transformers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.tensor import ViewId, same_checksums, shared_view
from ckptdoctor.facts.names import EMBEDDING, HEAD
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex


def twins_of(
    here: Mapping[str, Tensor], others: Iterable[str], wanted: Sequence[str], ties: Iterable[Iterable[str]] = ()
) -> dict[str, str]:
    """Return those of ``others`` that are one tensor with a key of ``wanted`` → that key.

    One tensor is what shows the same elements of one storage. A head that has bytes of its own passes for its embedding
    where the checksums say that these are equal; of other tensors, equal checksums tell nothing: all zeros have one.

    None is another name of what a target has under several already (``ties`` are such names): it would have that one,
    too.
    """
    firsts: dict[object, str] = {}
    several = {key for keys in ties for key in keys}
    for key in wanted:
        view = shared_view(here[key])
        if firsts.setdefault(view, key) != key and view is not None:
            several.update((key, firsts[view]))
    found: dict[str, str] = {}
    for key in others:
        view = shared_view(here[key])
        twin = firsts.get(view) if view is not None else None
        if twin is None and HEAD.search(key):
            twin = next((each for each in wanted if EMBEDDING.search(each) and _same(here[key], here[each])), None)
        if twin is not None and twin not in several:
            found[key] = twin
    return found


def is_one(tensor: Tensor, other: Tensor) -> bool:
    """Return whether both show the same elements of one storage."""
    view = shared_view(tensor)
    return view is not None and view == shared_view(other)


def _same(head: Tensor, table: Tensor) -> bool:
    alike = (head.shape, head.dtype.name) == (table.shape, table.dtype.name)
    return alike and same_checksums(head, table) is True


# ---- one tensor under two names of a state dict, of which a target wants only one


_DEPTH = 32  # tokens of a key that are compared: keys of a million dots must not cost a million steps each


@noun
class Alias:
    """``keys`` (after the renames) are the very tensors of ``twins``, which the target wants.

    All that is under ``name`` is in them; ``twin`` is the name that is in its place in the twins.
    """

    name: str
    twin: str
    keys: tuple[str, ...]
    twins: tuple[str, ...]


def aliases(here: Mapping[str, Tensor], others: Iterable[str], wanted: Iterable[str]) -> tuple[Alias, ...]:
    """Return names among ``others`` that have nothing but what a sibling's name has too, as the same memory."""
    pairs = _pairs(here, others, wanted)
    if not pairs:
        return ()
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for key, twin in pairs:
        found.setdefault(_differing(key, twin), []).append((key, twin))
    held = _held(here, {name for name, _ in found})
    return tuple(
        [
            Alias(name, twin, tuple([key for key, _ in group]), tuple([kept for _, kept in group]))
            for (name, twin), group in found.items()
            if len(group) == held[name]
        ]
    )


def _pairs(here: Mapping[str, Tensor], others: Iterable[str], wanted: Iterable[str]) -> list[tuple[str, str]]:
    """Return the other keys, each with a wanted one that views the same elements and differs in exactly one token."""
    views = [(key, view) for key in others if (view := shared_view(here[key])) is not None]
    seen = {view for _, view in views}
    storages = {view[0] for view in seen}
    kept: dict[ViewId, list[str]] = {}
    for key in wanted if views else ():
        storage = here[key].storage
        if storage is not None and storage.key in storages and (view := shared_view(here[key])) in seen:
            kept.setdefault(view, []).append(key)
    found = []
    for key, view in views:
        twin = next((other for other in kept.get(view, ())[:_DEPTH] if _differing(key, other) != ("", "")), None)
        if twin is not None:
            found.append((key, twin))
    return found


def _differing(one: str, other: str) -> tuple[str, str]:
    """Return the names up to the one token in which two keys differ; two empty ones where it is not exactly one."""
    left, right = one.split("."), other.split(".")
    if len(left) != len(right) or len(left) > _DEPTH:
        return "", ""
    at = [index for index, (a, b) in enumerate(zip(left, right, strict=True)) if a != b]
    return (".".join(left[: at[0] + 1]), ".".join(right[: at[0] + 1])) if len(at) == 1 else ("", "")


def _held(keys: Iterable[str], under: set[str]) -> dict[str, int]:
    """Return how many keys there are under each of these names."""
    depths = sorted({name.count(".") + 1 for name in under})
    found = dict.fromkeys(under, 0)
    for key in keys:
        tokens = key.split(".", _DEPTH)
        for depth in depths:
            name = ".".join(tokens[:depth])
            if depth <= len(tokens) and name in found:
                found[name] += 1
    return found


# ---- names that models are known to have for one tensor, whatever a file holds


# tensors that models share, and the other name of each: the lists of tied weights in transformers
# (_tied_weights_keys of GPT-2, Llama, BERT, Whisper and T5)
_SHARED = (
    (HEAD, EMBEDDING),
    (regex(r"(?:^|\.)proj_out\.weight$"), regex(r"(?:^|\.)decoder\.embed_tokens\.weight$")),
    (regex(r"\.predictions\.decoder\.weight$"), regex(r"(?:^|\.)embeddings\.word_embeddings\.weight$")),
    (regex(r"\.predictions\.decoder\.bias$"), regex(r"\.predictions\.bias$")),
    (regex(r"(?:^|\.)(?:en|de)coder\.embed_tokens\.weight$"), regex(r"(?:^|\.)shared\.weight$")),
)

_MOST_FIRSTS = 4  # names that may be the first of a pair: of more, none is it


def known_partner(key: str, here: Iterable[str]) -> str | None:
    """Return the only key here that models which have ``key`` are known to share it with, either way."""
    for one, other in _SHARED:
        for mine, theirs in ((one, other), (other, one)):
            found = [each for each in here if theirs.search(each)] if mine.search(key) else []
            if len(found) == 1:
                return found[0]
    return None


_ENDS = (
    *("lm_head.weight", "embed_out.weight", "proj_out.weight"),
    *(".predictions.decoder.weight", ".predictions.decoder.bias", "embed_tokens.weight"),
)


def known_pairs(keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield names that models are known to have for one tensor: (second name, first name)."""
    listed = list(keys)
    seconds = [key for key in listed if key.endswith(_ENDS)]
    for one, other in _SHARED if seconds else ():
        names = [key for key in seconds if one.search(key)]
        firsts = [key for key in listed if other.search(key)] if names else []
        if len(firsts) <= _MOST_FIRSTS:
            yield from ((name, first) for name in names for first in firsts if name != first)
