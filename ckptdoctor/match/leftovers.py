"""Shares out the keys that are left over, once all have their final names, among the rules that can say why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.expectation import is_extra_state
from ckptdoctor.facts import adapters, names
from ckptdoctor.match import norms
from ckptdoctor.match.buffers import LitEma, is_derived, lit_ema, profiler_counters
from ckptdoctor.match.comparison import Comparison, Explained
from ckptdoctor.match.norms import RunningStats
from ckptdoctor.match.parametrized import beside, computable, parametrized, pruned_for
from ckptdoctor.match.second_names import Alias, aliases
from ckptdoctor.match.wrappers import carries
from ckptdoctor.noun import noun
from ckptdoctor.regex import regex

# ---- losses, metrics and teachers that were saved next to the model, each under one name at the top


# criterion, loss_fn, mse_loss, val_metrics, …: whole words, however they are put together
_SIDE = regex(
    r"(?:\w+_)?(?:loss|losses|criterion|criterions|criteria|metric|metrics)(?:_(?:fn|fns|func|function|module|modules))?"
)
_LENGTH = 64  # characters of a name that anybody would give
_TEACHERS = frozenset({"teacher", "teacher_model", "teacher_net", "teacher_network", "online_finetuner", "lpips"})


@noun
class Block:
    """The keys below one name at the top, after the renames. ``copies``: some are the target's own under that name.

    ``trained``: it may be a network of its own, a teacher or what a loss looks at, and not counts and class weights.
    """

    name: str
    keys: tuple[str, ...]
    copies: bool
    trained: bool


def is_side(name: str) -> bool:
    """Return whether this is what people call a loss, a metric or a teacher."""
    name = name[: _LENGTH + 1].lower()
    return len(name) <= _LENGTH and (name in _TEACHERS or _SIDE.fullmatch(name) is not None)


def side_blocks(comparison: Comparison, unexpected: Iterable[str]) -> tuple[Block, ...]:
    """Return such blocks among the unexpected keys; none of a name under which the target expects something itself."""
    wanted, here = comparison.reference.tensors, comparison.renamed.here
    found: dict[str, list[str]] = {}
    for key in unexpected:
        name, dot, _ = key.partition(".")
        if dot and is_side(name):
            found.setdefault(name, []).append(key)
    if not found:
        return ()
    own = {key.partition(".")[0] for key in wanted}
    blocks = []
    for name, keys in found.items():
        if name not in own:
            inner = [(wanted.get(key[len(name) + 1 :]), here[key].shape) for key in keys]
            copies = any(expected is not None and expected.shape == shape for expected, shape in inner)
            trained = name.lower() in _TEACHERS or any(map(_may_be_trained, [here[key] for key in keys]))
            blocks.append(Block(name, tuple(keys), copies, trained))
    return tuple(blocks)


def _may_be_trained(tensor: Tensor) -> bool:
    """Return whether it may be a layer's: of a weight for each class, a mean or a count there is one number each."""
    return tensor.dtype.kind == "float" and len(tensor.shape) > 1


# ---- what is left, by the rules that can say why


@noun(eq=False)
class Leftovers:
    """Each rule's share, under the names after all renames: a key belongs to one rule at most.

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
    """Return what R001, R002 and R003 need not list.

    Another rule says why it is so, of shapes or of leftovers.
    """
    from ckptdoctor.match.shapes import causes  # many modules, which only a comparison needs

    norms = computable(comparison)
    parts = frozenset([part for each in norms for part in each.parts])
    masked = pruned_for(comparison)
    parts = parts.union([part for each in masked for part in each.parts])
    others = parametrized(comparison)
    parts = parts.union([part for _, original in others for part in beside(comparison, original)])
    wanted = [each.key for each in norms] + [each.key for each in masked] + [key for key, _ in others]
    known = Explained(frozenset(wanted), parts)
    return causes.explained_by_shapes(comparison) | leftovers(comparison).explained | known


@cached_by_identity
def leftovers(comparison: Comparison) -> Leftovers:
    """Return each rule's share.

    There is nothing where the target is another model altogether, or what the rules of shapes explain.
    """
    renamed = comparison.renamed
    if comparison.uncovered or not (renamed.missing or renamed.unexpected):
        return Leftovers()
    from ckptdoctor.match.shapes import causes

    known = causes.explained_by_shapes(comparison)
    versions = norms.final_versions(comparison)
    uncounted, unasked = norms.missing_counters(comparison, versions)
    uncounted = tuple([key for key in uncounted if key not in known.missing])
    missing = [key for key in renamed.missing if key not in known.missing]
    derived_missing = tuple([key for key in missing if _derived_there(comparison, key)])
    extra_missing = tuple(filter(is_extra_state, missing))
    shared = _tied(comparison, {*derived_missing, *uncounted, *unasked, *known.missing})
    covered = len(renamed.missing) == sum(map(len, (uncounted, unasked, derived_missing, extra_missing, shared)))
    left = _Left([key for key in renamed.unexpected if key not in known.unexpected])
    whole = any(move.code == "W308" for move in comparison.moves) or (covered and not renamed.mismatched)
    average = lit_ema(renamed.here, left.keys, whole)
    left.take(average.keys if average is not None else ())
    adapter = adapters.foreign(comparison.state_dict, comparison.reference.tensors)
    unmerged = left.those(_is_adapter_part) if adapter is not None and adapter.wrapped else ()
    blocks = side_blocks(comparison, left.keys) if covered and not renamed.mismatched else ()
    left.take([key for block in blocks for key in block.keys])
    found = aliases(renamed.here, left.keys, renamed.fits)
    left.take([key for alias in found for key in alias.keys])
    flat = left.those(lambda key: "flat_param" in key and names.flat_parameter((key,)) is not None)
    counts = _profiled(comparison)
    profiled = left.those(lambda key: id(renamed.here[key]) in counts) if counts else ()
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
    """Return missing keys that are other names of a tensor that fits under another one of its names."""
    renamed = comparison.renamed
    fits = set(renamed.fits) if renamed.tied else ()
    return tuple(
        [(key, renamed.tied[key]) for key in renamed.missing if renamed.tied.get(key, "") in fits and key not in known]
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
    tensor = comparison.renamed.here[key]
    return is_derived(key, tensor.shape, tensor.dtype)


def _derived_there(comparison: Comparison, key: str) -> bool:
    expected = comparison.reference.tensors[key]
    return is_derived(key, expected.shape, expected.dtype)


def _profiled(comparison: Comparison) -> set[int]:
    """Return the tensors (by identity) that N420 drops."""
    if comparison.state_dict is None or carries(comparison.reference, "N420"):
        return set()
    return set(map(id, profiler_counters(comparison.state_dict)))


def _is_adapter_part(key: str) -> bool:
    """Return whether a key is an adapter's, or one of the two states of a layer that was trained together with one."""
    return adapters.part_of(key) is not None or adapters.copy_of(key) is not None or f".{adapters.ORIGINAL}." in key
