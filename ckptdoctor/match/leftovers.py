"""What is left over once a checkpoint's keys have their final names, shared out among the rules that can say why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.expectation import is_extra_state
from ckptdoctor.checkpoint.tensor import ViewId, shared_view
from ckptdoctor.facts import adapters, names
from ckptdoctor.match import norms
from ckptdoctor.match.blocks import Block, side_blocks
from ckptdoctor.match.buffers import is_derived
from ckptdoctor.match.comparing import Comparison, carries
from ckptdoctor.match.explained import Explained
from ckptdoctor.match.lit_ema import LitEma, lit_ema
from ckptdoctor.match.norms import RunningStats
from ckptdoctor.match.parametrized import beside, computable, parametrized
from ckptdoctor.match.profiled import profiler_counters
from ckptdoctor.match.pruning import pruned_for
from ckptdoctor.noun import noun


@noun(eq=False)
class Leftovers:
    """Each rule's share, under the names after all cures: a key belongs to one rule at most.

    ``unasked`` are counters that the target has and torch does not ask for: they are nobody's trouble.
    """

    flat: tuple[str, ...] = ()  # N406
    uncounted: tuple[str, ...] = ()  # N416: missing
    unasked: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()  # N417
    stats: tuple[RunningStats, ...] = ()  # N418
    derived_missing: tuple[str, ...] = ()  # N419
    derived: tuple[str, ...] = ()  # N419
    profiled: tuple[str, ...] = ()  # N420
    extra_missing: tuple[str, ...] = ()  # N421
    extra: tuple[str, ...] = ()  # N421
    blocks: tuple[Block, ...] = ()  # N422
    aliases: tuple[Alias, ...] = ()  # N425
    average: LitEma | None = None  # N428
    adapters: tuple[str, ...] = ()  # L906
    tied: tuple[tuple[str, str], ...] = ()  # R005: missing, each with the name under which the tensor is here

    @property
    def explained(self) -> Explained:
        """All shares together."""
        average = self.average.keys if self.average is not None else ()
        alone = (self.flat, self.counters, self.derived, self.profiled, self.extra, self.adapters, average)
        together = [each.keys for some in (self.stats, self.blocks, self.aliases) for each in some]
        tied = [key for key, _ in self.tied]
        return Explained(
            missing=frozenset().union(self.uncounted, self.unasked, self.derived_missing, self.extra_missing, tied),
            unexpected=frozenset().union(*alone, *together),
        )


def explained(comparison: Comparison) -> Explained:
    """What R001, R002 and R003 need not list, because another rule says why it is so: of shapes, or of leftovers."""
    from ckptdoctor.match.shapes import sorting  # many modules, which only a comparison needs

    norms = computable(comparison)
    parts = frozenset([part for each in norms for part in each.parts])
    masked = pruned_for(comparison)
    parts = parts.union([part for each in masked for part in each.parts])
    others = parametrized(comparison)
    parts = parts.union([part for _, original in others for part in beside(comparison, original)])
    wanted = [each.key for each in norms] + [each.key for each in masked] + [key for key, _ in others]
    known = Explained(frozenset(wanted), parts)
    return sorting.explained(comparison) | leftovers(comparison).explained | known


@cached_by_identity
def leftovers(comparison: Comparison) -> Leftovers:
    """Each rule's share; nothing where the target is another model altogether, or what the rules of shapes explain."""
    cured = comparison.cured
    if comparison.uncovered or not (cured.missing or cured.unexpected):
        return Leftovers()
    from ckptdoctor.match.shapes import sorting

    known = sorting.explained(comparison)
    versions = norms.final_versions(comparison)
    uncounted, unasked = norms.missing_counters(comparison, versions)
    uncounted = tuple([key for key in uncounted if key not in known.missing])
    missing = [key for key in cured.missing if key not in known.missing]
    derived_missing = tuple([key for key in missing if _derived_there(comparison, key)])
    extra_missing = tuple(filter(is_extra_state, missing))
    shared = _tied(comparison, {*derived_missing, *uncounted, *unasked, *known.missing})
    covered = len(cured.missing) == sum(map(len, (uncounted, unasked, derived_missing, extra_missing, shared)))
    left = _Left([key for key in cured.unexpected if key not in known.unexpected])
    whole = any(move.code == "W308" for move in comparison.moves) or (covered and not cured.mismatched)
    average = lit_ema(cured.here, left.keys, whole)
    left.take(average.keys if average is not None else ())
    adapter = adapters.foreign(comparison.state_dict, comparison.reference.tensors)
    unmerged = left.those(adapters.is_adapter_part) if adapter is not None and adapter.wrapped else ()
    blocks = side_blocks(comparison, left.keys) if covered and not cured.mismatched else ()
    left.take([key for block in blocks for key in block.keys])
    found = aliases(comparison, left.keys)
    left.take([key for alias in found for key in alias.keys])
    flat = left.those(lambda key: "flat_param" in key and names.flat_parameter((key,)) is not None)
    counts = _profiled(comparison)
    profiled = left.those(lambda key: id(cured.here[key]) in counts) if counts else ()
    extra = left.those(is_extra_state)
    derived = left.those(lambda key: _derived_here(comparison, key))
    stats = norms.unwanted_stats(comparison, left.keys, versions)
    left.take([key for each in stats for key in each.keys])
    return Leftovers(
        flat=flat,
        uncounted=uncounted,
        unasked=tuple(unasked),
        counters=norms.frozen_counters(comparison, left.keys),
        stats=stats,
        derived_missing=derived_missing,
        derived=derived,
        profiled=profiled,
        extra_missing=extra_missing,
        extra=extra,
        blocks=blocks,
        aliases=found,
        average=average,
        adapters=unmerged,
        tied=shared,
    )


def _tied(comparison: Comparison, known: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Missing keys that are other names of a tensor that fits under another one of its names."""
    cured = comparison.cured
    fits = set(cured.fits) if cured.tied else ()
    return tuple(
        [(key, cured.tied[key]) for key in cured.missing if cured.tied.get(key, "") in fits and key not in known]
    )


class _Left:
    """The unexpected keys that no rule has taken yet."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.keys = dict.fromkeys(keys)

    def take(self, keys: Iterable[str]) -> None:
        for key in keys:
            del self.keys[key]

    def those(self, wanted: Callable[[str], bool]) -> tuple[str, ...]:
        found = tuple([key for key in self.keys if wanted(key)])
        self.take(found)
        return found


def _derived_here(comparison: Comparison, key: str) -> bool:
    tensor = comparison.cured.here[key]
    return is_derived(key, tensor.shape, tensor.dtype)


def _derived_there(comparison: Comparison, key: str) -> bool:
    expected = comparison.reference.tensors[key]
    return is_derived(key, expected.shape, expected.dtype)


def _profiled(comparison: Comparison) -> set[int]:
    """The tensors (by identity) that N420 drops."""
    if comparison.state_dict is None or carries(comparison.reference, "N420"):
        return set()
    return set(map(id, profiler_counters(comparison.state_dict)))


# ---- one tensor under two names of a state dict, of which a target wants only one


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
