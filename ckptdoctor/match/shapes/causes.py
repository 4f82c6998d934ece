"""Decides once for each comparison which rule speaks of which key: one cause for each."""

from __future__ import annotations

from itertools import chain

from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.match import quantized
from ckptdoctor.match.comparison import Comparison, Explained
from ckptdoctor.match.shapes.experts import Experts, experts
from ckptdoctor.match.shapes.fused import Fused, fused
from ckptdoctor.match.shapes.heads import Head, Vocabulary, heads, vocabulary
from ckptdoctor.match.shapes.layer_names import is_first
from ckptdoctor.match.shapes.pairs import Pair, model_order, pairs_of, same_but_for_ones
from ckptdoctor.match.shapes.placeholders import placeholders
from ckptdoctor.match.shapes.positions import Positions, positions
from ckptdoctor.match.shapes.projections import GATE_UP, QKV
from ckptdoctor.match.shapes.size import WrongSize, wrong_size
from ckptdoctor.match.shapes.tensor_parallel import Sharded, sharded
from ckptdoctor.match.shapes.transposed import TransposedFamily, transposed
from ckptdoctor.noun import noun, replace


@noun
class Shapes:
    """What the shapes of a comparison say, by cause. A key of another shape is in one of these at most.

    Where ``size`` or ``shards`` is set, it is the cause of all that differs.
    """

    placeholders: tuple[Pair, ...] = ()  # S511: there are no values here
    shards: Sharded | None = None  # S512: one rank's part under tensor parallelism
    size: WrongSize | None = None  # S510: a larger or smaller model
    transposed: tuple[TransposedFamily, ...] = ()  # S505: rows and columns are exchanged
    units: tuple[Pair, ...] = ()  # S506: they differ in dimensions of size 1
    vocabulary: Vocabulary | None = None  # S502
    heads: tuple[Head, ...] = ()  # S501: other outputs
    positions: tuple[Positions, ...] = ()  # S503
    channels: Pair | None = None  # S504: the first convolution takes other channels
    inflated: tuple[Pair, ...] = ()  # S513: a kernel with one side more or fewer
    # S507, S508 and S509: one side has in one tensor what the other has in several
    qkv: tuple[Fused, ...] = ()
    gates: tuple[Fused, ...] = ()
    experts: tuple[Experts, ...] = ()


@cached_by_identity
def shapes(comparison: Comparison) -> Shapes:
    """Return what the shapes of a comparison say.

    Each pair goes to the first cause that explains it, the most sweeping first.
    """
    pairs = _without(pairs_of(comparison), set(quantized.explained_by_quantization(comparison).mismatched))
    empty = _placeholders(comparison, pairs)
    pairs = _without(pairs, {pair.key for pair in empty})
    found = Shapes(
        placeholders=empty,
        shards=sharded(comparison, pairs),
        qkv=fused(comparison, QKV),
        gates=fused(comparison, GATE_UP),
        experts=experts(comparison),
    )
    size = wrong_size(comparison, pairs) if found.shards is None and not empty else None
    if found.shards is not None or size is not None:
        return replace(found, size=size)
    families = transposed(comparison, pairs)
    pairs = _without(pairs, {key for family in families for key in family.reversed})
    units = tuple([pair for pair in pairs if same_but_for_ones(pair)])
    found = replace(found, transposed=families, units=units)
    return _of_single_layers(comparison, _without(pairs, {pair.key for pair in units}), found)


def explained_by_shapes(comparison: Comparison) -> Explained:
    """Return the keys of which the rules about shapes speak, and those about quantised weights."""
    found = shapes(comparison)
    apart = (*found.qkv, *found.gates)
    missing = {key for each in apart for key in (each.parts if each.here else (each.key,))}
    unexpected = {key for each in apart for key in ((each.key,) if each.here else each.parts)}
    for layer in found.experts:
        missing.update(layer.apart if layer.here else layer.stacked)
        unexpected.update(layer.stacked if layer.here else layer.apart)
    mismatched = {pair.key for pair in _single_pairs(found)}
    if found.shards is not None:
        mismatched.update((*found.shards.rows, *found.shards.columns))
    if found.size is not None:
        missing.update(found.size.missing)
        unexpected.update(found.size.unexpected)
        mismatched.update(found.size.mismatched)
    for family in found.transposed:
        mismatched.update(family.reversed)
    found_here = Explained(frozenset(missing), frozenset(unexpected), frozenset(mismatched))
    return found_here | quantized.explained_by_quantization(comparison)


def sweeping(comparison: Comparison) -> bool:
    """Return whether the shapes say why so little fits: one cause for all of the model, or nothing left unexplained."""
    found, renamed = shapes(comparison), comparison.renamed
    if found.size is not None or found.shards is not None or found.placeholders or comparison.conversion is not None:
        return True
    known = explained_by_shapes(comparison)
    return all(
        known_keys.issuperset(keys)
        for known_keys, keys in (
            (known.missing, renamed.missing),
            (known.unexpected, renamed.unexpected),
            (known.mismatched, renamed.mismatched),
        )
    )


def _single_pairs(found: Shapes) -> list[Pair]:
    """Return the pairs that are explained one by one, not as part of a model or a family of matrices."""
    single = (found.channels,) if found.channels is not None else ()
    table = found.vocabulary.pairs if found.vocabulary is not None else ()
    heads = chain.from_iterable([head.pairs for head in found.heads])
    tables = chain.from_iterable([each.pairs for each in found.positions])
    return [*found.placeholders, *found.units, *table, *heads, *tables, *single, *found.inflated]


def _of_single_layers(comparison: Comparison, pairs: list[Pair], found: Shapes) -> Shapes:
    """Return the same with the causes that are in single layers.

    For an altogether different model, other sizes of its head mean nothing.
    """
    if comparison.uncovered:
        return found
    table = vocabulary(pairs)
    pairs = _without(pairs, {pair.key for pair in table.pairs} if table is not None else set())
    places = positions(pairs)
    pairs = _without(pairs, {pair.key for each in places for pair in each.pairs})
    first, flat = input_channels(comparison, pairs), inflated(pairs)
    pairs = _without(pairs, {pair.key for pair in (*flat, *([first] if first is not None else []))})
    return replace(
        found,
        vocabulary=table,
        heads=heads(comparison, pairs),
        positions=places,
        channels=first,
        inflated=flat,
    )


def _placeholders(comparison: Comparison, pairs: list[Pair]) -> tuple[Pair, ...]:
    found = placeholders(comparison.state_dict) if comparison.state_dict is not None else None
    if found is None:
        return ()
    gone = set(map(id, found.empty))
    return tuple([pair for pair in pairs if id(comparison.renamed.here[pair.key]) in gone])


def _without(pairs: list[Pair], taken: set[str]) -> list[Pair]:
    return [pair for pair in pairs if pair.key not in taken]


# ---- S504 and S513: the first convolution takes other channels; convolutions of other dimensions


_RANKS = (3, 4, 5)  # Conv1d, Conv2d, Conv3d


def input_channels(comparison: Comparison | None, pairs: list[Pair]) -> Pair | None:
    """Return the model's first convolution, where its inputs alone differ and nothing else has its sizes.

    Of an error (``comparison`` None) only its name tells which one is the first.
    """
    found = [
        pair for pair in pairs if len(pair.here) in _RANKS and (change := pair.change) is not None and change[0] == 1
    ]
    if len(found) != 1:
        return None
    [pair] = found
    change = pair.change
    assert change is not None
    sides = {
        side
        for other in pairs
        if other is not pair and len(other.here) == len(other.there)
        for side in zip(other.here, other.there, strict=True)
    }
    if change[1:] in sides:  # a layer before it gives as many
        return None
    first = _first(comparison) if comparison is not None else "0.weight"
    return pair if is_first(pair.key) or first == pair.key else None


def inflated(pairs: list[Pair]) -> tuple[Pair, ...]:
    """Return convolutions with the same channels, whose kernels differ only in one dimension more or fewer."""
    return tuple([pair for pair in pairs if _inflates(pair.here, pair.there) or _inflates(pair.there, pair.here)])


def _inflates(flat: tuple[int, ...], deep: tuple[int, ...]) -> bool:
    if len(flat) not in _RANKS or len(deep) != len(flat) + 1:
        return False
    return flat[:2] == deep[:2] and flat[2:] in (deep[3:], deep[2:-1])


def _first(comparison: Comparison) -> str | None:
    """Return the first convolution in the model's own order."""
    there = comparison.reference.tensors
    return next((key for key in model_order(comparison) if key in there and len(there[key].shape) in _RANKS), None)
