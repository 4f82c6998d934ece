"""Decides once for each comparison which rule speaks of which key: one cause for each."""

from __future__ import annotations

from itertools import chain

from ckptdoctor.facts import quantization_explained
from ckptdoctor.facts.alignment import Comparison
from ckptdoctor.facts.explained import Explained
from ckptdoctor.facts.once import once
from ckptdoctor.facts.shapes import units
from ckptdoctor.facts.shapes.convolutions import inflated, input_channels
from ckptdoctor.facts.shapes.experts import Experts, experts
from ckptdoctor.facts.shapes.fused import Fused, fused
from ckptdoctor.facts.shapes.heads import Head, Vocabulary, heads, vocabulary
from ckptdoctor.facts.shapes.pairs import Pair, pairs_of
from ckptdoctor.facts.shapes.placeholders import placeholders
from ckptdoctor.facts.shapes.positions import Positions, positions
from ckptdoctor.facts.shapes.projections import GATE_UP, QKV
from ckptdoctor.facts.shapes.shards import Sharded, sharded
from ckptdoctor.facts.shapes.size import WrongSize, wrong_size
from ckptdoctor.facts.shapes.transposed import Family, transposed
from ckptdoctor.noun import noun


@noun
class Shapes:
    """What the shapes of a comparison say. A key of another shape is in one of these at most.

    Where ``size`` or ``shards`` is set, it speaks for all of them.
    """

    placeholders: tuple[Pair, ...] = ()
    shards: Sharded | None = None
    size: WrongSize | None = None
    transposed: tuple[Family, ...] = ()
    units: tuple[Pair, ...] = ()
    vocabulary: Vocabulary | None = None
    heads: tuple[Head, ...] = ()
    positions: tuple[Positions, ...] = ()
    channels: Pair | None = None
    inflated: tuple[Pair, ...] = ()
    qkv: tuple[Fused, ...] = ()
    gates: tuple[Fused, ...] = ()
    experts: tuple[Experts, ...] = ()


@once
def shapes(comparison: Comparison) -> Shapes:
    """What the shapes of a comparison say: each pair to the first rule that explains it, the most sweeping first."""
    pairs = _without(pairs_of(comparison), set(quantization_explained.explained(comparison).mismatched))
    empty = _placeholders(comparison, pairs)
    pairs = _without(pairs, {pair.key for pair in empty})
    apart = fused(comparison, QKV), fused(comparison, GATE_UP), experts(comparison)
    shards = sharded(comparison, pairs)
    size = wrong_size(comparison, pairs) if shards is None and not empty else None
    if shards is not None or size is not None:
        return Shapes(empty, shards, size, qkv=apart[0], gates=apart[1], experts=apart[2])
    families = transposed(comparison, pairs)
    pairs = _without(pairs, {key for family in families for key in family.reversed})
    same = tuple([pair for pair in pairs if units.alike(pair)])
    found = Shapes(empty, None, None, families, same, qkv=apart[0], gates=apart[1], experts=apart[2])
    return _narrow(comparison, _without(pairs, {pair.key for pair in same}), found)


def explained(comparison: Comparison) -> Explained:
    """The keys of which the rules about shapes speak, and those about quantised weights."""
    found = shapes(comparison)
    apart = (*found.qkv, *found.gates)
    missing = {key for each in apart for key in (each.parts if each.here else (each.key,))}
    unexpected = {key for each in apart for key in ((each.key,) if each.here else each.parts)}
    for layer in found.experts:
        missing.update(layer.apart if layer.here else layer.stacked)
        unexpected.update(layer.stacked if layer.here else layer.apart)
    mismatched = {pair.key for pair in _pairs(found)}
    if found.shards is not None:
        mismatched.update((*found.shards.rows, *found.shards.columns))
    if found.size is not None:
        missing.update(found.size.missing)
        unexpected.update(found.size.unexpected)
        mismatched.update(found.size.mismatched)
    for family in found.transposed:
        mismatched.update(family.reversed)
    found_here = Explained(frozenset(missing), frozenset(unexpected), frozenset(mismatched))
    return found_here | quantization_explained.explained(comparison)


def sweeping(comparison: Comparison) -> bool:
    """Whether the shapes say why so little fits: one cause for all of the model, or nothing left unexplained."""
    found, cured = shapes(comparison), comparison.cured
    if found.size is not None or found.shards is not None or found.placeholders or comparison.conversion is not None:
        return True
    known = explained(comparison)
    return all(
        known_keys.issuperset(keys)
        for known_keys, keys in (
            (known.missing, cured.missing),
            (known.unexpected, cured.unexpected),
            (known.mismatched, cured.mismatched),
        )
    )


def _pairs(found: Shapes) -> list[Pair]:
    """The pairs that the narrow rules speak of."""
    single = (found.channels,) if found.channels is not None else ()
    table = found.vocabulary.pairs if found.vocabulary is not None else ()
    heads = chain.from_iterable([head.pairs for head in found.heads])
    tables = chain.from_iterable([each.pairs for each in found.positions])
    return [*found.placeholders, *found.units, *table, *heads, *tables, *single, *found.inflated]


def _narrow(comparison: Comparison, pairs: list[Pair], found: Shapes) -> Shapes:
    """Single layers. Where the model is another one altogether, that its head has other sizes says nothing."""
    if comparison.uncovered:
        return found
    table = vocabulary(pairs)
    pairs = _without(pairs, {pair.key for pair in table.pairs} if table is not None else set())
    places = positions(pairs)
    pairs = _without(pairs, {pair.key for each in places for pair in each.pairs})
    first, flat = input_channels(comparison, pairs), inflated(pairs)
    pairs = _without(pairs, {pair.key for pair in (*flat, *([first] if first is not None else []))})
    return Shapes(
        found.placeholders,
        transposed=found.transposed,
        units=found.units,
        vocabulary=table,
        heads=heads(comparison, pairs),
        positions=places,
        channels=first,
        inflated=flat,
        qkv=found.qkv,
        gates=found.gates,
        experts=found.experts,
    )


def _placeholders(comparison: Comparison, pairs: list[Pair]) -> tuple[Pair, ...]:
    found = placeholders(comparison.state_dict) if comparison.state_dict is not None else None
    if found is None:
        return ()
    gone = set(map(id, found.empty))
    return tuple([pair for pair in pairs if id(comparison.cured.here[pair.key]) in gone])


def _without(pairs: list[Pair], taken: set[str]) -> list[Pair]:
    return [pair for pair in pairs if pair.key not in taken]
