"""A model has lists of alike layers, of which some may be missing between the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from ckptdoctor.checkpoint import StateDict
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.facts.names import keys_of, without_digits
from ckptdoctor.noun import noun

# what models call a list of alike layers
LISTS = frozenset({"layers", "layer", "blocks", "block", "h", "decoder_layers", "encoder_layers", "transformer_blocks"})
_LAYER = re.compile(r"(?<![^.])([a-z_]+)\.(\d{1,4})\.")
_FEWEST = 4  # layers that a list must have, and names that each of them must hold


@noun
class Layers:
    """A list of alike layers: its name, the numbers that are there, and those between that are not."""

    name: str
    present: tuple[int, ...]
    missing: tuple[int, ...]


@cached_by_identity
def layer_lists(state_dict: StateDict) -> tuple[Layers, ...]:
    """Return the lists of alike layers in a model: those with several submodules in every one."""
    return tuple(_layer_lists(keys_of(state_dict)))


def _layer_lists(keys: tuple[str, ...]) -> Iterator[Layers]:
    found: dict[str, dict[int, set[str]]] = {}
    places: dict[str, _Place | None] = {}  # by the form of a key: names of layers differ in their numbers
    told = ""  # how the keys of a layer begin of which enough is known: nearly all keys are those of one
    for key in keys:
        if told and key.startswith(told):
            continue
        form = without_digits(key)
        if form not in places:
            places[form] = _place(form)
        place = places[form]
        if place is not None:
            end, number, inner = place
            inside = found.setdefault(key[:end], {}).setdefault(int(key[number]), set())
            if len(inside) < _FEWEST:
                inside.add(key[inner:])
            if len(inside) == _FEWEST:
                told = key[:inner]
    for name, layers in found.items():
        if len(layers) >= _FEWEST and all(len(inside) >= _FEWEST for inside in layers.values()):
            present = sorted(layers)
            yield Layers(name, tuple(present), tuple(_between(present)))


_Place = tuple[int, slice, int]  # where in a key the name of a list ends, its number is, and the rest begins


def _place(form: str) -> _Place | None:
    match = _LAYER.search(form, 0, 512)
    if match is None or match[1] not in LISTS or "." not in form[match.end() :]:
        return None
    return match.end(1), slice(*match.span(2)), match.end()


def _between(present: list[int]) -> Iterable[int]:
    """Return the numbers that are left out.

    There are none where the list is made so (every second one, or few of many).
    """
    if len({after - before for before, after in pairwise(present)}) == 1:
        return ()
    missing = sorted(set(range(present[0], present[-1])) - set(present))
    return missing if 2 * len(missing) <= len(present) else ()
