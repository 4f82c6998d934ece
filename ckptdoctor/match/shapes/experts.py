"""S509: the experts of a mixture, stacked in one tensor on one side and apart on the other."""

from __future__ import annotations

from math import prod

from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.shapes.pairs import Shape, is_index
from ckptdoctor.noun import field, noun, replace

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
    """Return the layers whose experts hold as many elements on both sides, in one tensor on one side alone."""
    renamed, there = comparison.renamed, comparison.reference.tensors
    ours = _gathered({key: renamed.here[key].shape for key in renamed.unexpected})
    theirs = _gathered({key: there[key].shape for key in renamed.missing})
    found = []
    for place, layer in ours.items():
        other = theirs.get(place)
        for stacked, apart, here in ((layer, other, True), (other, layer, False)):
            if stacked is not None and apart is not None and _same(stacked, apart):
                keys = (tuple(stacked.stacked), tuple(apart.apart))
                found.append(Experts(place, len(apart.indices), *keys, here))
    return tuple(found)


def _same(stacked: _Layer, apart: _Layer) -> bool:
    """Return whether the stacked tensors have a slice for each of the experts, and as many elements."""
    count = len(apart.indices)
    if count < 2 or apart.indices != set(range(count)) or not stacked.stacked or stacked.apart or apart.stacked:
        return False
    sizes = [prod(shape) for shape in stacked.stacked.values()]
    return sum(sizes) == sum(map(prod, apart.apart.values())) and all(size % count == 0 for size in sizes)


def _gathered(shapes: dict[str, Shape]) -> dict[str, _Layer]:
    """Return the experts' keys by the block around them: mixtures have different names for what is in between."""
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
    """Return the path up to its last index; the whole path where it has none."""
    end = next((end for end in range(len(tokens), 0, -1) if is_index(tokens[end - 1])), len(tokens))
    return ".".join(tokens[:end])


# ---- which slice of which stacked tensor is which expert's, where names and shapes tell


@noun
class Stack:
    """The tensor ``key`` has a slice for each of ``apart``, in their order; ``shape`` is that of one of these.

    ``turned`` says that slices are transposed.
    """

    key: str
    apart: tuple[str, ...]
    shape: Shape
    turned: bool

    @property
    def square(self) -> bool:
        """Whether a transposed slice would fit just as well."""
        return len(self.shape) > 1 and self.shape == self.shape[::-1]


def stacks(comparison: Comparison, layer: Experts, turned: bool | None = None) -> tuple[Stack, ...]:
    """Return how the layer's tensors belong together; nothing where names or shapes do not tell it of all of them.

    Where slices are transposed, a square one does not show whether it is: ``turned`` says it of all.
    """
    there, here = comparison.reference.tensors, comparison.renamed.here
    ours, theirs = (layer.stacked, layer.apart) if layer.here else (layer.apart, layer.stacked)
    shapes = {key: here[key].shape for key in ours} | {key: there[key].shape for key in theirs}
    apart: dict[str, dict[int, str]] = {}
    for key in layer.apart:
        index, _, name = _inside(key).partition(".")
        if apart.setdefault(_plain(name), {}).setdefault(int(index), key) != key:
            return ()
    found = [_stack(key, apart.pop(_plain(_inside(key)), {}), shapes, layer.count) for key in layer.stacked]
    made = tuple([each for each in found if each is not None])
    if turned is not None:
        made = tuple([replace(each, turned=turned) if each.square else each for each in made])
        told = all(each.turned is turned for each in made if len(each.shape) > 1)
        return made if told and not apart and len(made) == len(found) else ()
    if apart or len(made) != len(found) or (any(each.turned for each in made) and any(each.square for each in made)):
        return ()
    return made


def _stack(key: str, apart: dict[int, str], shapes: dict[str, Shape], count: int) -> Stack | None:
    """Return the stack of these experts' tensors, where they are all there and as large as its slices."""
    if set(apart) != set(range(count)):
        return None
    keys = tuple([apart[index] for index in range(count)])
    sizes, whole = {shapes[each] for each in keys}, shapes[key]
    shape = sizes.pop()
    if sizes or not shape or 0 in shape or whole[:1] != (count,):
        return None
    if whole[1:] == shape:
        return Stack(key, keys, shape, False)
    return Stack(key, keys, shape, True) if len(shape) == 2 and whole[1:] == shape[::-1] else None


def _inside(key: str) -> str:
    """Return what follows the name of the mixture: ``0.w1.weight``."""
    tokens = key.split(".")
    at = next(at for at, token in enumerate(tokens[:-1]) if token in _EXPERTS)
    return ".".join(tokens[at + 1 :])


def _plain(name: str) -> str:
    """Return a name as both sides have it: ``w1`` for ``w1.weight``, ``w1.bias`` for ``w1_bias``."""
    return name.removesuffix(".weight").removesuffix("_weight").replace("_bias", ".bias")
