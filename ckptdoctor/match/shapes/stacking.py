"""S509: which slice of which stacked tensor is which expert's, where names and shapes tell."""

from __future__ import annotations

from dataclasses import replace

from ckptdoctor.match.comparing import Comparison
from ckptdoctor.match.shapes.experts import Experts
from ckptdoctor.match.shapes.pairs import Shape
from ckptdoctor.noun import noun

LAYOUTS = ("out-in", "in-out")  # of slices: as torch.nn.Linear has its weight, or transposed
_EXPERTS = ("experts", "expert", "local_experts")  # what mixtures call them


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
    """How the layer's tensors belong together; nothing where names or shapes do not tell it of all of them.

    Where slices are transposed, a square one does not show whether it is: ``turned`` says it of all.
    """
    there, here = comparison.reference.tensors, comparison.cured.here
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
    """The stack of these experts' tensors, where they are all there and as large as its slices."""
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
    """What follows the name of the mixture: ``0.w1.weight``."""
    tokens = key.split(".")
    at = next(at for at, token in enumerate(tokens[:-1]) if token in _EXPERTS)
    return ".".join(tokens[at + 1 :])


def _plain(name: str) -> str:
    """A name as both sides have it: ``w1`` for ``w1.weight``, ``w1.bias`` for ``w1_bias``."""
    return name.removesuffix(".weight").removesuffix("_weight").replace("_bias", ".bias")
