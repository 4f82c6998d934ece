"""Describes contents as places in which things are, so that an edit moves a thing and leaves it the same.

A tree of nouns says at every tensor where it is. Here only the places know their steps: what is renamed, dropped or
taken out is one place, whatever is below it, and where a thing is at the end follows from the places around it.
Containers are opened when somebody looks into them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Union

from ckptdoctor.checkpoint import Cycle, KeyPath, Mapping, Node, Opaque, Part, Sequence, Special, Tensor, show_path
from ckptdoctor.checkpoint.tree import Elided, Named

Rank = tuple[int, ...]  # the order of the entries of a dict: what comes behind (3,) without moving others is (3, x)


class UnaccountedError(Exception):
    """Something that no edit names; the text says what, as the rest of a sentence."""


class Box:
    """A container: the noun it began as, where that was, and the places in it once it has been opened."""

    __slots__ = (
        *("_arguments", "_attributes", "_by_step", "_entries", "_items", "_opened", "_state"),
        *("above", "node", "where"),
    )

    def __init__(self, node: Mapping | Sequence | Opaque, where: KeyPath = (), above: Box | None = None) -> None:
        self.node = node
        self.where = where
        self.above = above
        self._opened = False
        self._by_step: dict[Part, Place] | None = None

    @property
    def entries(self) -> list[Place]:
        """The entries of a dict or an object, in their order."""
        self._open()
        return self._entries

    @entries.setter
    def entries(self, places: list[Place]) -> None:
        self._open()
        self._entries = places
        self._by_step = None

    @property
    def items(self) -> list[Place]:
        """The items of a list or an object."""
        self._open()
        return self._items

    @items.setter
    def items(self, places: list[Place]) -> None:
        self._items = places

    @property
    def arguments(self) -> list[Place]:
        """What an object is called with."""
        self._open()
        return self._arguments

    @property
    def state(self) -> Place:
        """What an object gets as its state."""
        self._open()
        return self._state

    @property
    def attributes(self) -> Box | None:
        """What was set on the dict object itself."""
        self._open()
        return self._attributes

    def _open(self) -> None:
        if self._opened:
            return
        self._opened = True
        node, where = self.node, self.where
        self._items, self._arguments, self._entries = [], [], []
        self._attributes = None
        if isinstance(node, Mapping):
            if node.attributes is not None:
                self._attributes = Box(node.attributes, where, self)
            self._entries = [
                Place(part, child if type(child) is Tensor else self._held(child, part), rank)
                for rank, (part, child) in zip(zip(count()), node.entries)  # noqa: B905 ranks have no end
            ]
            return
        self._items = [Place(index, self._held(child, index)) for index, child in enumerate(node.items)]
        if isinstance(node, Opaque):
            for index, child in enumerate(node.arguments):
                step = Special(f"({index})")
                self._arguments.append(Place(step, self._held(child, step)))
            inside = isinstance(node.state, Mapping)  # the steps of a state that is a dict are the object's own
            state = Box(node.state, where, self) if isinstance(node.state, Mapping) else None
            step = Special(".state")
            self._state = Place(step, state if inside else self._held(node.state, step))
            self._entries = [
                Place(part, self._held(child, part), (rank,)) for rank, (part, child) in enumerate(node.entries)
            ]

    def _held(self, node: Node, step: Part) -> Held:
        if isinstance(node, (Mapping, Sequence, Opaque)):
            return Box(node, (*self.where, step), self)
        if isinstance(node, Cycle):
            around: Box | None = self
            while around is not None and around.where != node.path:
                around = around.above
            return node if around is None else Loop(around)
        return node

    def place(self, step: Part) -> Place | None:
        """Return the place to which a step leads, as ``checkpoint.children`` names steps."""
        if isinstance(self.node, Sequence):
            return self.items[step] if isinstance(step, int) and 0 <= step < len(self.items) else None
        if isinstance(self.node, Mapping):
            found = self._entry(step)
            if found is None and isinstance(step, Special) and self.attributes is not None:
                found = self.attributes._entry(step.text.removeprefix("."))
            return found
        found = next((each for each in self.arguments if each.step == step), None)
        if found is None:
            inside = self.state.holds
            if isinstance(inside, Box) and isinstance(inside.node, Mapping):
                found = inside.place(step)
            elif step == self.state.step:
                found = self.state
        if found is None and isinstance(step, int) and 0 <= step < len(self.items):
            found = self.items[step]
        return self._entry(step) if found is None else found

    def _entry(self, step: Part) -> Place | None:
        if self._by_step is None:
            self._by_step = {each.step: each for each in reversed(self.entries)}
        return self._by_step.get(step)

    def without(self, gone: set[int]) -> None:
        """Take places out, by their ``id``; what follows in a list moves up."""
        self.items = [each for each in self.items if id(each) not in gone]
        self.entries = [each for each in self.entries if id(each) not in gone]
        if isinstance(self.node, Opaque) and isinstance(self.state.holds, Box):
            self.state.holds.without(gone)

    def sort(self) -> None:
        """Bring the entries into the order of their ranks."""
        self.entries = sorted(self.entries, key=_rank)

    def places(self) -> Iterator[Place]:
        """Yield every place right inside, in file order; the places of attributes are not among them."""
        yield from self.arguments
        if isinstance(self.node, Opaque):
            yield self.state
        yield from self.items
        yield from self.entries

    def noun(self) -> Node:
        """Return the container as a noun again, for code that reads nouns.

        Tensors in it say where they were originally.
        """
        if not self._opened:
            return self.node
        entries = tuple([(each.step, noun_of(each.holds)) for each in self.entries])
        items = tuple([noun_of(each.holds) for each in self.items])
        if isinstance(self.node, Mapping):
            attributes = None if self.attributes is None else self.attributes.noun()
            return Mapping(self.node.kind, entries, attributes if isinstance(attributes, Mapping) else None)
        if isinstance(self.node, Sequence):
            return Sequence(self.node.kind, items)
        arguments = tuple([noun_of(each.holds) for each in self.arguments])
        return Opaque(self.node.class_name, arguments, noun_of(self.state.holds), items, entries)


class Loop:
    """A way back to a container around this place."""

    __slots__ = ("to",)

    def __init__(self, to: Box) -> None:
        self.to = to


Held = Union[Box, Loop, Tensor, None, bool, int, float, str, bytes, Named, Cycle, Elided]


class Place:
    """One step, and what is there; ``rank`` orders the entries of a dict."""

    __slots__ = ("holds", "rank", "step")

    def __init__(self, step: Part, holds: Held, rank: Rank = ()) -> None:
        self.step = step
        self.holds = holds
        self.rank = rank


def _rank(place: Place) -> Rank:
    return place.rank


def held(node: Node) -> Held:
    """Return what a place holds for a node that was not anywhere before."""
    return Box(node) if isinstance(node, (Mapping, Sequence, Opaque)) else node


def noun_of(thing: Held) -> Node:
    """Return what is in a place, as a noun."""
    if isinstance(thing, Box):
        return thing.noun()
    return Cycle(thing.to.where) if isinstance(thing, Loop) else thing


def place_at(root: Place, path: KeyPath) -> Place:
    """Return the place at a key path. Raises UnaccountedError where there is none."""
    place = root
    for step in path:
        found = place.holds.place(step) if isinstance(place.holds, Box) else None
        if found is None:
            raise UnaccountedError(f"an edit names {show_path(path)}, where nothing would be left")
        place = found
    return place


def box_at(root: Place, path: KeyPath) -> Box:
    """Return the container at a key path. Raises UnaccountedError where there is none."""
    box = place_at(root, path).holds
    if not isinstance(box, Box):
        raise UnaccountedError(f"an edit names something in {show_path(path)}, which would be empty")
    return box


def boxes(root: Place) -> Iterator[Box]:
    """Yield every container, each before those inside it; attributes too."""
    stack: list[Held] = [root.holds]
    while stack:
        box = stack.pop()
        if isinstance(box, Box):
            yield box
            inside = [each.holds for each in box.places() if isinstance(each.holds, Box)]
            if isinstance(box.node, Mapping) and box.attributes is not None:
                inside.append(box.attributes)
            stack.extend(reversed(inside))


def tensor_places(root: Place) -> list[Place]:
    """Return every place with a tensor."""
    found = [place for box in boxes(root) for place in box.places() if isinstance(place.holds, Tensor)]
    return [root] if isinstance(root.holds, Tensor) else found
