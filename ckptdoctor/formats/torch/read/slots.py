"""Finds where the children of a graph node are, so that they can be replaced, renamed or removed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Part, Special
from ckptdoctor.formats.torch.read.objects import DICTS, Kind, ObjectShape, is_dict, object_shape, parts_of
from ckptdoctor.formats.torch.read.values import ITEM_STEPS, PAIR_STEPS, bare, full_name
from ckptdoctor.noun import noun
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, String, Tuple, Value


@noun
class Slot:
    """One place in a list of the graph."""

    holder: list[Value]
    index: int

    @property
    def value(self) -> Value:
        """The current value."""
        return self.holder[self.index]

    def put(self, value: Value) -> None:
        """Put ``value`` there instead."""
        self.holder[self.index] = value


@noun
class Child:
    """One child of a node: the slot of its value, and of its key in a dict.

    ``via`` are the slots that lead from the node to the one that holds the child: to the state of an object, to the
    tuple of its arguments. To drop the child, ``width`` values are taken out from the slot ``first`` on (the key and
    the value, the item, or the pair); None: it cannot be dropped.
    """

    value: Slot
    key: Slot | None = None
    via: tuple[Slot, ...] = ()
    first: Slot | None = None
    width: int = 0


Children = dict[Part, list[Child]]


def children(node: Value) -> Children:
    """Return the children of a node by the step that leads to each, as the tree shows them.

    A repeated key has several, of which the last one counts.
    """
    found: Children = {}
    for part, child in _children(bare(node)):
        found.setdefault(part, []).append(child)
    return found


def _children(node: Value) -> Iterator[tuple[Part, Child]]:
    if isinstance(node, Tuple):
        for index in range(len(node.items)):
            yield index, Child(Slot(node.items, index))
    if not isinstance(node, Made):
        return
    shape = object_shape(node)
    if shape.kind is Kind.OBJECT:
        yield from _arguments(node)
        yield from _states(node)
        yield from enumerate(_items(node))
        yield from _pairs(node, shape)
    elif shape.kind is Kind.SEQUENCE:
        yield from _sequence(node, shape)
    else:
        yield from _mapping(node, shape)


def _sequence(node: Made, shape: ObjectShape) -> Iterator[tuple[Part, Child]]:
    if shape.filled is node:
        yield from enumerate(_items(node))
    elif isinstance(shape.filled, (Made, Tuple)):
        way = _way_to_argument(node)
        for part, child in _children(shape.filled):
            yield part, Child(child.value, None, way, child.first, child.width)


def _mapping(node: Made, shape: ObjectShape) -> Iterator[tuple[Part, Child]]:
    if shape.pairs is not None:
        parts, repeats = parts_of(shape.found.keys)
        listed = [each[-1].value for each in children(shape.filled).values()]
        for index, (pair, slot) in enumerate(zip(shape.pairs, listed, strict=True)):
            inside = children(pair)
            first, second = inside[0][-1].value, inside[1][-1].value
            yield parts[repeats.get(index, index)], Child(second, first, (*_way_to_argument(node), slot), slot, 1)
    elif isinstance(shape.filled, Made):
        way = () if shape.filled is node else _way_to_argument(node)
        for part, child in _pairs(shape.filled, shape):
            yield part, Child(child.value, child.key, way, child.first, child.width)
    yield from _attributes(node)


def key_slots(node: Value, parts: Sequence[Part]) -> list[tuple[list[Value], int]] | None:
    """Return the holder and index of each key of a dict.

    It is None unless these are its keys, all texts and each set in it once.
    """
    node = bare(node)
    if not isinstance(node, Made):
        return None
    shape = object_shape(node)
    if shape.kind is not Kind.MAPPING or shape.filled is not node or shape.pairs is not None:
        return None
    places = [(each, at) for each in _payloads(node, PAIR_STEPS, op.DICT) for at in range(0, len(each) - 1, 2)]
    texts = [key.value if type(key) is String else None for key in shape.found.keys]
    return places if texts == [*parts] and len(places) == len(texts) == len(set(texts)) else None


def _way_to_argument(node: Made) -> tuple[Slot, ...]:
    """Return the slots that lead from an object to the one list, dict or tuple that it is made of."""
    arguments = bare(node.items[1])
    if node.op in (op.OBJ, op.INST) or not isinstance(arguments, Tuple):
        return (Slot(node.items, 1),)
    return Slot(node.items, 1), Slot(arguments.items, 0)


def _pairs(node: Made, shape: ObjectShape) -> Iterator[tuple[Part, Child]]:
    parts, repeats = parts_of(shape.found.keys)
    index = 0
    for payload in _payloads(node, PAIR_STEPS, op.DICT):
        for at in range(0, len(payload) - 1, 2):
            yield parts[repeats.get(index, index)], Child(Slot(payload, at + 1), key := Slot(payload, at), (), key, 2)
            index += 1


def _items(node: Made) -> Iterator[Child]:
    for payload in _payloads(node, ITEM_STEPS, op.LIST):
        for at in range(len(payload)):
            yield Child(slot := Slot(payload, at), None, (), slot, 1)


def _payloads(node: Made, steps: frozenset[int], made_full: int) -> Iterator[list[Value]]:
    if node.op == made_full:
        yield node.items
    for step in node.steps or ():
        if step.op in steps:
            yield step.payload


def _arguments(node: Made) -> Iterator[tuple[Part, Child]]:
    slots: list[tuple[Slot, tuple[Slot, ...]]] = []
    if not node.items:  # a set or another thing that takes none, where damage put it
        return
    if full_name(node.items[0]) is None:
        slots.append((Slot(node.items, 0), ()))
    inside = bare(node.items[1]) if len(node.items) > 1 else None
    if node.op in (op.OBJ, op.INST):
        slots += [(Slot(node.items, index), ()) for index in range(1, len(node.items))]
    elif isinstance(inside, Tuple):
        slots += [(Slot(inside.items, index), (Slot(node.items, 1),)) for index in range(len(inside.items))]
    else:
        slots.append((Slot(node.items, 1), ()))
    if node.op == op.NEWOBJ_EX:
        slots.append((Slot(node.items, 2), ()))
    for index, (slot, via) in enumerate(slots):
        yield Special(f"({index})"), Child(slot, via=via)


def _build_slots(node: Made) -> Iterator[Slot]:
    for step in node.steps or ():
        if step.op == op.BUILD:
            for index in range(len(step.payload)):
                yield Slot(step.payload, index)


def _states(node: Made) -> Iterator[tuple[Part, Child]]:
    for slot in _build_slots(node):
        if not is_dict(slot.value):
            yield Special(".state"), Child(slot)
            continue
        for part, child in _children(bare(slot.value)):
            yield part, Child(child.value, child.key, (slot, *child.via), child.first, child.width)


def _attributes(node: Made) -> Iterator[tuple[Part, Child]]:
    for slot in _build_slots(node):
        state = bare(slot.value)
        if not isinstance(state, Made) or state.op not in DICTS:
            yield Special(".state"), Child(slot)
            continue
        for part, child in _pairs(state, object_shape(state)):
            name = part.text if isinstance(part, Special) else str(part)
            yield Special(f".{name}"), Child(child.value, child.key, (slot,), child.first, child.width)
