"""What objects that torch refuses become: arrays tensors, and others the plain data that they are."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.checkpoint import KeyPath, Mapping, Node, Sequence
from ckptdoctor.facts.array_tensors import held_values
from ckptdoctor.facts.blocked_globals import Place
from ckptdoctor.facts.plain_data import NotPlainError, as_plain
from ckptdoctor.noun import noun


@noun
class Conversion:
    """Arrays that become tensors, what becomes plain data (and which), and what stays, with the reason."""

    tensors: tuple[Place, ...]
    plain: tuple[tuple[Place, object], ...]
    stuck: tuple[tuple[Place, str], ...]


def conversion(tree: Node, places: Iterable[Place]) -> Conversion:
    """What these objects of the tree become."""
    places = list(places)
    free = _free(tree, [place.path for place in places])
    tensors: list[Place] = []
    plain: list[tuple[Place, object]] = []
    stuck: list[tuple[Place, str]] = []
    for place in places:
        if place.path in free and held_values(place.node) is not None:
            tensors.append(place)
            continue
        try:
            if not place.path:
                raise NotPlainError("it is the whole checkpoint")
            plain.append((place, as_plain(place.node, loosely=True)))
        except NotPlainError as error:
            stuck.append((place, str(error)))
    return Conversion(tuple(tensors), tuple(plain), tuple(stuck))


def _free(tree: Node, paths: Iterable[KeyPath]) -> set[KeyPath]:
    """Those of the paths to which nothing but entries of dicts and lists leads: there a tensor can stand."""
    wanted = {path for path in paths if path}
    ways = {path[:end] for path in wanted for end in range(len(path))}
    found: set[KeyPath] = set()
    stack: list[tuple[KeyPath, Node]] = [((), tree)] if ways else []
    while stack:
        path, node = stack.pop()
        entries = node.entries if isinstance(node, Mapping) else ()
        items = enumerate(node.items) if isinstance(node, Sequence) else ()
        for part, child in (*entries, *items):
            below = (*path, part)
            if below in wanted:
                found.add(below)
            if below in ways:
                stack.append((below, child))
    return found
