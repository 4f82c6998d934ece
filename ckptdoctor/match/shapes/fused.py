"""S507 and S508: projections that one side holds in one tensor, and the other apart."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.pairs import Shape, is_index
from ckptdoctor.match.shapes.projections import Projections
from ckptdoctor.noun import noun


@noun
class Fused:
    """One tensor and its parts: shapes that add up along ``axis``. ``here`` says that the checkpoint has the one."""

    key: str
    shape: Shape
    parts: tuple[str, ...]
    part_shapes: tuple[Shape, ...]
    axis: int
    here: bool


@noun
class _Name:
    """A key as the place of its layer, the layer's name, and the tensor's: ``weight`` of ``q_proj`` in ``layers.0``."""

    place: str
    layer: str
    leaf: str


def fused(comparison: Comparison, kind: Projections) -> tuple[Fused, ...]:
    """Return every tensor of this kind whose parts are in the same place on the other side, with shapes that add up."""
    here = {key: comparison.renamed.here[key].shape for key in comparison.renamed.unexpected}
    there = {key: comparison.reference.tensors[key].shape for key in comparison.renamed.missing}
    return (*_matched(kind, here, there, here=True), *_matched(kind, there, here, here=False))


def _matched(kind: Projections, ones: dict[str, Shape], apart: dict[str, Shape], *, here: bool) -> Iterable[Fused]:
    whole = {key: name for key in ones if (name := _name(key)).layer in kind.fused}
    if not whole:
        return
    wanted = {part for names in kind.parts for part in names}
    pieces: dict[tuple[str, str], dict[str, str]] = {}
    for key in apart:
        name = _name(key)
        if name.layer in wanted:
            pieces.setdefault((name.place, name.leaf), {})[name.layer] = key
    near = _by_block(pieces)
    for key, name in whole.items():
        found = pieces.get((name.place, name.leaf)) or near.get((_block(name.place), name.leaf))
        if found is not None and (match := _added_up(kind, key, ones[key], found, apart, here=here)) is not None:
            yield match


def _added_up(
    kind: Projections, key: str, shape: Shape, found: dict[str, str], shapes: dict[str, Shape], *, here: bool
) -> Fused | None:
    """Return the parts whose shapes add up to the fused one's; none where others would do as well."""
    whole = [set(names) for names in kind.parts if found.keys() >= set(names)]
    if any(not one & other for one in whole for other in whole):
        return None
    for names in kind.parts:
        parts = tuple([found[name] for name in names if name in found])
        if len(parts) != len(names) or len(shape) not in (1, 2):
            continue
        sides = tuple([shapes[part] for part in parts])
        if any(len(side) != len(shape) for side in sides) or sides[-1] != sides[-2]:
            continue
        rows = (sum([side[0] for side in sides]), *sides[0][1:])
        if len({side[1:] for side in sides}) == 1 and shape in (rows, rows[::-1]):
            return Fused(key, shape, parts, sides, 0 if shape == rows else 1, here)
    return None


def _by_block(pieces: dict[tuple[str, str], dict[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
    """Return the parts by the block that they are in, where it has them only once.

    Then it is self-attention, not cross-attention.
    """
    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for (place, leaf), each in pieces.items():
        found.setdefault((_block(place), leaf), []).append(each)
    return {where: each[0] for where, each in found.items() if where[0] and len(each) == 1}


def _block(place: str) -> str:
    """Return the place up to its last index; nothing where it has none."""
    tokens = place.split(".")
    while tokens and not is_index(tokens[-1]):
        tokens.pop()
    return ".".join(tokens)


def _name(key: str) -> _Name:
    path, _, leaf = key.rpartition(".")
    for end in ("weight", "bias"):
        if leaf.endswith(f"_{end}"):  # nn.MultiheadAttention: in_proj_weight, q_proj_weight
            return _Name(path, leaf[: -len(end) - 1], end)
    place, _, layer = path.rpartition(".")
    return _Name(place, layer, leaf)


# ---- S508: fused names that say themselves what is in them in which order


# the fused layer's name → the parts that it spells out, in their order along the rows. Sources: transformers
# (Phi3MLP, Glm4MLP: gate, up = gate_up_proj(x).chunk(2)), vLLM (w13 is w1 above w3), xformers and DINOv2 (w12)
_SPELLED = {
    "gate_up_proj": ("gate_proj", "up_proj"),
    "gate_and_up_proj": ("gate_proj", "up_proj"),
    "gate_up": ("gate", "up"),
    "w13": ("w1", "w3"),
    "w12": ("w1", "w2"),
}


def spelled(found: Fused) -> bool:
    """Return whether the name tells the order, and the rows are outputs."""
    return found.axis == 0 and _SPELLED.get(_layer(found.key)) == tuple([_layer(part) for part in found.parts])


def _layer(key: str) -> str:
    """Return the name of the layer that a weight or a bias belongs to."""
    path, _, leaf = key.rpartition(".")
    for end in ("_weight", "_bias"):
        if leaf.endswith(end):
            return leaf.removesuffix(end)
    return path.rpartition(".")[2]
