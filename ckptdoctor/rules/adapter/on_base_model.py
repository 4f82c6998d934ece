"""Compares an adapter with the model that it is for: which layers it finds there, and whether they fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ckptdoctor.checkpoint import Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.expectation import Expected
from ckptdoctor.facts import adapters
from ckptdoctor.facts.adapters import LEAD, Adapter
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.noun import noun

_DEPTH, _LENGTH = 32, 1024  # tokens of a name that are looked at; longer ones are nobody's


@noun
class OtherShape:
    """A tensor that does not fit the model's ``key``, which is of the shape ``wanted``."""

    tensor: Tensor
    key: str
    wanted: tuple[int, ...]


@noun(eq=False)
class OnBase:
    """An adapter on a model. ``modules`` are its layers, as its keys call them.

    ``lead`` is what their names begin with here, ``wanted`` what peft would have before them for this model; ``found``
    are the layers of the model that it then sits on, ``other_shapes`` what does not fit them.
    """

    adapter: Adapter
    modules: tuple[str, ...]
    lead: str
    wanted: str
    found: tuple[str, ...]
    other_shapes: tuple[OtherShape, ...]


@cached_by_identity
def on_base(comparison: Comparison) -> OnBase | None:
    """Return the adapter of a comparison, or None where there is none, or where the reference is an adapter, too."""
    state_dict = comparison.state_dict
    adapter = adapters.foreign(state_dict, comparison.reference.tensors)
    if state_dict is None or adapter is None or adapter.wrapped:
        return None
    wanted = comparison.reference.tensors
    layers = {key.rpartition(".")[0] for key in wanted if len(key) < _LENGTH}
    modules = tuple([module for module in adapter.modules if len(module) < _LENGTH])
    lead, given, found = _leads(modules, layers)
    other_shapes = tuple(_other_shapes(adapter, state_dict.tensors, wanted, lead, given)) if found else ()
    return OnBase(adapter, modules, lead, LEAD + given, found, other_shapes)


def _leads(modules: tuple[str, ...], layers: set[str]) -> tuple[str, str, tuple[str, ...]]:
    """Return what to take from the names and what to put before them, so that most of them are layers of the model."""
    own = LEAD if all(module.startswith(LEAD) for module in modules) else ""
    votes: Counter[tuple[str, str]] = Counter({(own, ""): 0})
    endings = _endings(layers)
    for module in modules:
        name, cut, depth = module[len(own) :], 0, 0
        while depth < _DEPTH:
            rest = name[cut:]
            for added in endings.get(rest, ()) if not cut else ([""] if rest in layers else ()):
                votes[own + name[:cut], added] += 1
            following = name.find(".", cut)
            if following < 0:
                break
            cut, depth = following + 1, depth + 1
    (lead, added), _ = max(votes.items(), key=lambda each: (each[1], each[0] == (own, ""), -len(each[0][0])))
    found = [added + module[len(lead) :] for module in modules if module.startswith(lead)]
    return lead, added, tuple([name for name in found if name in layers])


def _endings(layers: set[str]) -> dict[str, list[str]]:
    """Return the last tokens of each layer's name → what precedes them: a few of them, where there are many."""
    found: dict[str, list[str]] = {}
    for layer in layers:
        cut, depth = 0, 0
        while depth < _DEPTH:
            before = found.setdefault(layer[cut:], [])
            if len(before) < 4 and layer[:cut] not in before:
                before.append(layer[:cut])
            following = layer.find(".", cut)
            if following < 0:
                break
            cut, depth = following + 1, depth + 1
    return found


def _other_shapes(
    adapter: Adapter, tensors: tuple[Tensor, ...], wanted: Mapping[str, Expected], lead: str, added: str
) -> Iterator[OtherShape]:
    """Yield layers of another shape there, and matrices with an outer size that the layer lacks."""
    for tensor in tensors:
        if tensor.key not in adapter.parts and tensor.key.startswith(lead):
            key = added + adapters.base_name(tensor.key, lead)
            expected = wanted.get(key)
            if expected is not None and expected.shape != tensor.shape and _is_plain(expected):
                yield OtherShape(tensor, key, expected.shape)
    for part, tensor in adapter.factors(tensors):
        key = f"{added}{part.module.removeprefix(lead)}.weight"
        expected = wanted.get(key)
        # convolutions in groups have other sizes
        if expected is None or len(expected.shape) != 2 or len(tensor.shape) != 2 or not _is_plain(expected):
            continue
        outer = tensor.shape[1 if part.parameter.endswith("A") else 0]
        if outer not in expected.shape:  # either: Conv1D of transformers holds its weight the other way round
            yield OtherShape(tensor, key, expected.shape)


def _is_plain(expected: Expected) -> bool:
    """Return whether the shape is that of the layer: quantized weights are packed in another one."""
    return expected.dtype is None or expected.dtype.kind == "float"
