"""One tensor under two names of a state dict, of which a target wants only one."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.checkpoint.tensor import ViewId, shared_view
from ckptdoctor.facts.alignment import Comparison
from ckptdoctor.noun import noun

_DEPTH = 32  # tokens of a key that are compared: keys of a million dots must not cost a million steps each


@noun
class Alias:
    """``keys`` (after the cures) are the very tensors of ``twins``, which the target wants.

    All that lies under ``name`` is in them; ``twin`` is the name that stands in its place in the twins.
    """

    name: str
    twin: str
    keys: tuple[str, ...]
    twins: tuple[str, ...]


def aliases(comparison: Comparison, unexpected: Iterable[str]) -> tuple[Alias, ...]:
    """Names under which there is nothing but what a sibling's name has too, as the same memory."""
    pairs = _pairs(comparison, unexpected)
    if not pairs:
        return ()
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for key, twin in pairs:
        found.setdefault(_differing(key, twin), []).append((key, twin))
    held = _held(comparison.cured.here, {name for name, _ in found})
    return tuple(
        [
            Alias(name, twin, tuple([key for key, _ in group]), tuple([kept for _, kept in group]))
            for (name, twin), group in found.items()
            if len(group) == held[name]
        ]
    )


def _pairs(comparison: Comparison, unexpected: Iterable[str]) -> list[tuple[str, str]]:
    """Unexpected keys, each with a key that fits, views the same elements, and differs in exactly one token."""
    here = comparison.cured.here
    views = [(key, view) for key in unexpected if (view := shared_view(here[key])) is not None]
    wanted = {view for _, view in views}
    storages = {view[0] for view in wanted}
    kept: dict[ViewId, list[str]] = {}
    for key in comparison.cured.fits if views else ():
        storage = here[key].storage
        if storage is not None and storage.key in storages and (view := shared_view(here[key])) in wanted:
            kept.setdefault(view, []).append(key)
    found = []
    for key, view in views:
        twin = next((other for other in kept.get(view, ())[:_DEPTH] if _differing(key, other) != ("", "")), None)
        if twin is not None:
            found.append((key, twin))
    return found


def _differing(one: str, other: str) -> tuple[str, str]:
    """The names up to the one token in which two keys differ; two empty ones where it is not exactly one."""
    left, right = one.split("."), other.split(".")
    if len(left) != len(right) or len(left) > _DEPTH:
        return "", ""
    at = [index for index, (a, b) in enumerate(zip(left, right, strict=True)) if a != b]
    return (".".join(left[: at[0] + 1]), ".".join(right[: at[0] + 1])) if len(at) == 1 else ("", "")


def _held(keys: Iterable[str], under: set[str]) -> dict[str, int]:
    """How many keys there are under each of these names."""
    depths = sorted({name.count(".") + 1 for name in under})
    found = dict.fromkeys(under, 0)
    for key in keys:
        tokens = key.split(".", _DEPTH)
        for depth in depths:
            name = ".".join(tokens[:depth])
            if depth <= len(tokens) and name in found:
                found[name] += 1
    return found
