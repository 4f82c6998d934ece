"""S510: the checkpoint is of a larger or smaller model than the target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction

from ckptdoctor.facts.alignment import Comparison
from ckptdoctor.facts.shapes import units
from ckptdoctor.facts.shapes.architectures import Architecture, architecture
from ckptdoctor.facts.shapes.kinds import is_head, is_position, is_vocabulary
from ckptdoctor.facts.shapes.pairs import Pair, Shape, block
from ckptdoctor.facts.shapes.stacks import Profile, Stack, profile, stacks
from ckptdoctor.noun import noun

_SHARE = Fraction(3, 10)  # of the keys that both sides have: so many differ where the whole model does
_SAME = Fraction(9, 10)  # of the names of layers on either side: so many are on both
_MODULES = 3  # a head and a neighbour are not the whole model
_AGREEING = Fraction(6, 10)  # of the sides that differ: so many in one and the same proportion
_ONE_WAY = Fraction(8, 10)  # or, where blocks show that it is one family: so many larger, or so many smaller
_COUNTER = "num_batches_tracked"


@noun
class Sized:
    """One side: its sizes, and the well-known model that has them."""

    sizes: Profile
    known: Architecture | None


@noun
class WrongSize:
    """Both sides, and what follows from their sizes: keys of other shapes, and keys of blocks that one side lacks.

    ``ratio`` is the proportion (here : there) in which most layers differ, where there is one.
    """

    here: Sized
    there: Sized
    ratio: Fraction | None
    mismatched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]


def wrong_size(comparison: Comparison, pairs: list[Pair]) -> WrongSize | None:
    """What shows that the two models are of one kind and of different sizes; None where nothing does."""
    cured = comparison.cured
    if not (pairs or cured.missing or cured.unexpected) or not (cured.fits or pairs):
        return None
    here = {key: tensor.shape for key, tensor in cured.here.items()}
    there = {key: expected.shape for key, expected in comparison.reference.tensors.items()}
    ours, theirs = stacks(here), stacks(there)
    shared = [stem for stem in theirs if stem in ours and _alike(ours[stem], theirs[stem])]
    one, other = _sized(here, ours, shared), _sized(there, theirs, shared)
    bulk = [pair for pair in pairs if _plain(pair)]
    ratio = _ratio(bulk)
    if (
        _named_apart(one, other)
        or _resized(comparison, bulk, ratio, one.sizes != other.sizes and bool(shared))
        or _deeper(comparison, [(ours[stem], theirs[stem]) for stem in shared])
    ):
        return WrongSize(
            one,
            other,
            ratio,
            tuple([pair.key for pair in pairs]),
            _inside(cured.missing, shared, one, other),
            _inside(cured.unexpected, shared, one, other),
        )
    return None


def _sized(shapes: Mapping[str, Shape], found: Mapping[str, Stack], shared: list[str]) -> Sized:
    chosen = [found[stem] for stem in shared]
    sizes = profile(shapes, chosen)
    return Sized(sizes, architecture(shapes, chosen, sizes))


def _alike(one: Stack, other: Stack) -> bool:
    """Whether the first blocks have a key of a module in common."""
    return any("." in rest and rest in other.blocks[0] for rest in one.blocks[0])


def _named_apart(one: Sized, other: Sized) -> bool:
    """Whether both sides are well-known models that differ in size alone."""
    return (
        one.known is not None
        and other.known is not None
        and one.known.family == other.known.family
        and one.known != other.known
    )


def _plain(pair: Pair) -> bool:
    """Whether nothing narrower than the model's size would explain the pair."""
    if len(pair.here) != len(pair.there) or pair.reversed or units.alike(pair):
        return False
    change = pair.change
    if change is None:
        return True
    rows_only = change[0] == 0 and (is_head(pair.key) or is_vocabulary(pair.key))
    return not rows_only and not is_position(pair.key)


def _proportions(bulk: Iterable[Pair]) -> Counter[Fraction]:
    """How often each proportion occurs among the sides that differ: inputs and outputs, not kernels."""
    sides = [side for pair in bulk for side in list(zip(pair.here, pair.there, strict=True))[:2]]
    found: Counter[Fraction] = Counter()
    for (a, b), times in Counter(sides).items():  # few are different, and fractions take their time
        if a != b and a > 0 and b > 0:
            found[Fraction(a, b)] += times
    return found


def _ratio(bulk: list[Pair]) -> Fraction | None:
    """The proportion that most sides have."""
    found = _proportions(bulk)
    if not found:
        return None
    [(usual, times)] = found.most_common(1)
    return usual if times >= _AGREEING * sum(found.values()) else None


def _resized(comparison: Comparison, bulk: list[Pair], ratio: Fraction | None, blocks_differ: bool) -> bool:
    """Whether a large part of the layers differs, in one proportion, or in one direction as the blocks do."""
    cured = comparison.cured
    shared = len(cured.fits) + len(cured.mismatched)
    if len(bulk) <= _SHARE * shared or len({pair.module for pair in bulk}) < _MODULES:
        return False
    if not _same_names(cured.here, comparison.reference.tensors):
        return False
    found = _proportions(bulk)
    total = sum(found.values())
    larger = sum([times for each, times in found.items() if each > 1])
    one_way = max(larger, total - larger) >= _ONE_WAY * total > 0
    return ratio is not None or (blocks_differ and one_way)


def _same_names(here: Iterable[str], there: Iterable[str]) -> bool:
    """Whether both sides have nearly the same layers, however often each is repeated: else it is another model."""
    ours, theirs = ({_anywhere(key) for key in keys} for keys in (here, there))
    return len(ours & theirs) >= _SAME * len(ours | theirs)


def _anywhere(key: str) -> str:
    """The key without the index of its block."""
    parts = block(key)
    return key if parts is None else f"{parts[0]}.*.{parts[2]}"


def _deeper(comparison: Comparison, shared: list[tuple[Stack, Stack]]) -> bool:
    """Whether one side has nothing more than the other but further blocks of the same form, and of no other side."""
    cured = comparison.cured
    apart = [key for key in (*cured.missing, *cured.unexpected) if not key.endswith(_COUNTER)]
    if cured.mismatched or not apart or (cured.missing and cured.unexpected):
        return False
    if not any(min(ours.depth, theirs.depth) >= 2 for ours, theirs in shared):
        return False
    extra: set[str] = set()
    for ours, theirs in shared:
        long, short = (ours, theirs) if ours.depth > theirs.depth else (theirs, ours)
        known: dict[str, set[Shape]] = {}
        for each in short.blocks:
            for rest, shape in each.items():
                known.setdefault(rest, set()).add(shape)
        for index in range(short.depth, long.depth):
            if any(shape not in known.get(rest, ()) for rest, shape in long.blocks[index].items()):
                return False
            extra.update(
                [f"{long.stem}.{index}.{rest}" if long.stem else f"{index}.{rest}" for rest in long.blocks[index]]
            )
    return all(key in extra for key in apart)


def _inside(keys: Iterable[str], shared: list[str], one: Sized, other: Sized) -> tuple[str, ...]:
    """The keys that lie in the stacks; and all of a VGG, whose layers are numbered one after another."""
    if one.known is not None and other.known is not None and one.known.family == other.known.family == "VGG":
        return tuple([key for key in keys if key.startswith("features.")])
    stems = set(shared)
    return tuple([key for key in keys if (parts := block(key)) is not None and parts[0] in stems])
