"""S509: the experts of a mixture, stacked in one tensor on one side and apart on the other."""

from __future__ import annotations

from dataclasses import field
from math import prod

from ckptdoctor.match.comparing import Comparison
from ckptdoctor.match.shapes.pairs import Shape, is_index
from ckptdoctor.noun import noun

_EXPERTS = ("experts", "expert", "local_experts")


@noun
class Experts:
    """The experts of one layer: ``count`` of them, ``stacked`` keys on one side, ``apart`` keys on the other."""

    place: str
    count: int
    stacked: tuple[str, ...]
    apart: tuple[str, ...]
    here: bool


@noun(frozen=False)
class _Layer:
    """The keys of one layer's experts on one side, as they are gathered."""

    stacked: dict[str, Shape] = field(default_factory=dict)
    apart: dict[str, Shape] = field(default_factory=dict)
    indices: set[int] = field(default_factory=set)


def experts(comparison: Comparison) -> tuple[Experts, ...]:
    """The layers whose experts hold as many elements on both sides, in one tensor on one side alone."""
    cured, there = comparison.cured, comparison.reference.tensors
    ours = _gathered({key: cured.here[key].shape for key in cured.unexpected})
    theirs = _gathered({key: there[key].shape for key in cured.missing})
    found = []
    for place, layer in ours.items():
        other = theirs.get(place)
        for stacked, apart, here in ((layer, other, True), (other, layer, False)):
            if stacked is not None and apart is not None and _same(stacked, apart):
                keys = (tuple(stacked.stacked), tuple(apart.apart))
                found.append(Experts(place, len(apart.indices), *keys, here))
    return tuple(found)


def _same(stacked: _Layer, apart: _Layer) -> bool:
    """Whether the stacked tensors have a slice for each of the experts, and as many elements."""
    count = len(apart.indices)
    if count < 2 or apart.indices != set(range(count)) or not stacked.stacked or stacked.apart or apart.stacked:
        return False
    sizes = [prod(shape) for shape in stacked.stacked.values()]
    return sum(sizes) == sum(map(prod, apart.apart.values())) and all(size % count == 0 for size in sizes)


def _gathered(shapes: dict[str, Shape]) -> dict[str, _Layer]:
    """The experts' keys by the block around them: mixtures call what lies between differently."""
    found: dict[str, _Layer] = {}
    for key, shape in shapes.items():
        tokens = key.split(".")
        at = next((at for at, token in enumerate(tokens[:-1]) if token in _EXPERTS), None)
        if at is None:
            continue
        layer = found.setdefault(_block(tokens[:at]), _Layer())
        if is_index(tokens[at + 1]) and len(tokens) > at + 2:
            layer.apart[key] = shape
            layer.indices.add(int(tokens[at + 1]))
        else:
            layer.stacked[key] = shape
    return found


def _block(tokens: list[str]) -> str:
    """The path up to its last index; the whole path where it has none."""
    end = next((end for end in range(len(tokens), 0, -1) if is_index(tokens[end - 1])), len(tokens))
    return ".".join(tokens[:end])
