"""The tree of contents is made out of a pickle graph: per occurrence, without recursion, within budgets."""

from __future__ import annotations

from collections.abc import Callable

from ckptdoctor.checkpoint import (
    Cycle,
    Elided,
    KeyPath,
    Mapping,
    Named,
    Node,
    Note,
    NoteKind,
    Opaque,
    Part,
    Sequence,
    Special,
    Tensor,
    show_path,
)
from ckptdoctor.formats.torch.read.objects import DICTS, Kind, ObjectShape, is_dict, object_shape, parts_of, plain_value
from ckptdoctor.formats.torch.read.tensors import TensorReader
from ckptdoctor.formats.torch.read.values import CALLS, Filling, bare, filling, full_name
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import (
    Extension,
    Global,
    Made,
    PersistentId,
    Pickle,
    Popped,
    String,
    Tuple,
    Value,
    storage_references,
)
from ckptdoctor.wording import and_more

# what a pickle may show at the least, and for each of its opcodes; more is what shared values multiply to
_LEAST_NODES = 1_000_000
_NODES_PER_OPCODE = 4

# containers within containers; beyond it, comparing two trees would exceed the recursion limit of Python 3.10
MAX_DEPTH = 128
_TOO_MANY = "more values than the tree of this file can show"


class _Frame:
    """A container on its way to its noun: values still to be read, with the step that leads to each (None: no step)."""

    __slots__ = ("close", "done", "node", "path", "steps", "values")

    def __init__(
        self,
        node: Value,
        path: KeyPath,
        values: list[Value],
        steps: list[Part] | range,
        close: Callable[[list[Node]], Node],
    ) -> None:
        self.node = node
        self.path = path
        self.values = values
        self.steps: list[Part] | range = steps
        self.close = close
        self.done: list[Node] = []


# stands for a step that adds nothing to the path: from an object to its state
NO_STEP = Special("")


class TreeBuilder:
    """Builds the tree of one pickle; ``tensors`` and ``notes`` fill on the way, in file order.

    ``incomplete`` says that something was left out of the tree (elided, or the earlier value of a repeated key), or is
    shown in another order than that of the stream.
    """

    def __init__(self, pickle: Pickle, reader: TensorReader, member: str) -> None:
        self._pickle = pickle
        self._reader = reader
        self._member = member
        self._left = max(_LEAST_NODES, _NODES_PER_OPCODE * pickle.opcodes)
        self._open: dict[int, KeyPath] = {}
        self._depth = 0
        self._elided: dict[str, KeyPath] = {}
        self.tensors: list[Tensor] = []
        self.notes: list[Note] = []
        self.incomplete = False

    def build(self) -> Node:
        """Return the tree below the pickle's root."""
        made = self._visit(self._pickle.root, ())
        if type(made) is not _Frame:
            return made  # type: ignore[return-value]  # mypy does not narrow by type() alone
        stack = [made]
        while True:
            frame = stack[-1]
            deeper = self._advance(frame)
            if deeper is not None:
                stack.append(deeper)
                self._depth = len(stack)
                continue
            stack.pop()
            self._depth = len(stack)
            self._open.pop(id(frame.node), None)
            noun = frame.close(frame.done)
            if not stack:
                self._report_elided()
                return noun
            stack[-1].done.append(noun)

    def _advance(self, frame: _Frame) -> _Frame | None:
        """Read the values of a frame up to the next container in it, which is returned."""
        values, done, steps, path = frame.values, frame.done, frame.steps, frame.path
        while len(done) < len(values):
            index = len(done)
            value = values[index]
            kind = type(value)
            if kind is String and value.op != op.BYTEARRAY8:  # type: ignore[union-attr]  # kind says what it is
                done.append(value.value)  # type: ignore[union-attr,arg-type]  # kind says what it is
            elif kind is int or kind is float or kind is bool or value is None:
                done.append(value)  # type: ignore[arg-type]  # kind says that it is plain
            else:
                # most of what is left are tensors, which are spared the ways of all other calls
                folded = kind is Made and value.folded is not None and self._left > 0  # type: ignore[union-attr]
                usual = self._reader.usual(values, steps, index, path) if folded else None
                if usual:
                    self.tensors += usual
                    done += usual
                    continue
                step = steps[index]
                found = self._visit(value, path if step is NO_STEP else (*path, step))
                if type(found) is _Frame:
                    return found
                done.append(found)  # type: ignore[arg-type]  # type() said that it is no frame
        return None

    def _visit(self, value: Value, path: KeyPath) -> Node | _Frame:
        """Return the noun for a value, or a frame where there is more to read inside it."""
        kind = type(value)
        if self._left <= 0 and isinstance(value, (Made, Tuple, Popped)):
            return self._elide(_TOO_MANY, path)
        if kind is Made:
            return self._made(value, path)  # type: ignore[arg-type]  # kind says what it is
        if kind is Tuple:
            assert isinstance(value, Tuple)
            name = "frozenset" if value.op == op.FROZENSET else "tuple"
            return self._sequence(value, path, name, value.items)
        value = bare(value)
        if isinstance(value, (Made, Tuple)):
            return self._visit(value, path)
        if isinstance(value, String):
            return _bytearray(value) if value.op == op.BYTEARRAY8 else value.value
        if isinstance(value, PersistentId):
            return self._persistent(value, path)
        if isinstance(value, (Global, Extension)):
            return Named(full_name(value) or "")
        return value  # type: ignore[return-value]  # what is left are plain values

    def _persistent(self, node: PersistentId, path: KeyPath) -> Node | _Frame:
        tensor = self._reader.raw_storage(node, path)
        if tensor is not None:
            self.tensors.append(tensor)
            return tensor
        self._reader.refuse_reference(node, path)
        name = full_name(node)
        if name is not None:
            return Named(name)
        return self._object(node, path, "persistent id", [node.id] if node.id is not None else [], Filling())

    def _made(self, node: Made, path: KeyPath) -> Node | _Frame:
        return self._called(node, path) if node.op in CALLS else self._shaped(node, path)

    def _called(self, node: Made, path: KeyPath) -> Node | _Frame:
        tensor = self._reader.read(node, path)
        if tensor is not None:
            self.tensors.append(tensor)
            return tensor
        plain = plain_value(node)
        return self._shaped(node, path) if plain is None else plain

    def _shaped(self, node: Made, path: KeyPath) -> Node | _Frame:
        shape = object_shape(node)
        if shape.kind is Kind.MAPPING:
            return self._mapping(node, path, shape)
        if shape.kind is Kind.SEQUENCE:
            return self._sequence(node, path, shape.name, shape.found.items)
        return self._object(node, path, shape.name, shape.arguments, shape.found)

    # ---- frames

    def _refused(self, node: Value, path: KeyPath, count: int) -> Node | None:
        """Return what stands for a container that cannot be entered.

        It is open already, too deep, or beyond the budget.
        """
        above = self._open.get(id(node))
        if above is not None:
            return Cycle(above)
        if self._depth >= MAX_DEPTH:
            return self._elide(f"more than {MAX_DEPTH} levels deep", path)
        if count > self._left:
            self._left = 0  # so that no further container is even counted
            return self._elide(_TOO_MANY, path)
        self._left -= count + 1
        self._open[id(node)] = path
        return None

    def _elide(self, reason: str, path: KeyPath) -> Node:
        self.incomplete = True
        self._elided.setdefault(reason, path)
        return Elided(reason)

    def _report_elided(self) -> None:
        for reason, path in self._elided.items():
            message = f"{show_path(path[:8])} holds {reason}; these are not shown"
            self.notes.append(Note(NoteKind.NOT_EXAMINED, message, self._member))

    def _sequence(self, node: Value, path: KeyPath, kind: str, values: list[Value]) -> Node | _Frame:
        refused = self._refused(node, path, len(values))
        if refused is not None:
            return refused
        return _Frame(node, path, values, range(len(values)), lambda done: Sequence(kind, tuple(done)))

    def _mapping(self, node: Value, path: KeyPath, shape: ObjectShape) -> Node | _Frame:
        kind, found = shape.name, shape.found
        refused = self._refused(node, path, len(found.values))
        if refused is not None:
            return refused
        parts, values = self._entries(found, path)
        extra = [*shape.extra, *attributes(found.states)]
        if not extra:
            return _Frame(node, path, values, parts, lambda done: Mapping(kind, tuple(zip(parts, done, strict=True))))
        names = [name for name, _ in extra]
        steps: list[Part] = [*parts, *[Special(f".{name}") for name in names]]

        def close(done: list[Node]) -> Node:
            cut = len(parts)
            own = Mapping("dict", tuple(zip(names, done[cut:], strict=True)))
            return Mapping(kind, tuple(zip(parts, done[:cut], strict=True)), own)

        return _Frame(node, path, [*values, *[value for _, value in extra]], steps, close)

    def _entries(self, found: Filling, path: KeyPath) -> tuple[list[Part], list[Value]]:
        """Return steps and values of a dict; a repeated key keeps its first place and its last value."""
        parts, repeats = parts_of(found.keys)
        values = found.values
        if any(type(part) is Special and _holds_storage(key) for part, key in zip(parts, found.keys, strict=True)):
            self.incomplete = True  # the key is told as text
        if not repeats:
            return parts, values
        self.incomplete = True
        values = list(values)
        for index, first in repeats.items():
            values[first] = values[index]
        repeated = list(dict.fromkeys(show_path((*path, parts[first])) for first in repeats.values()))
        message = f"{and_more(repeated, 3, spelt=str)}: the same key is in one dict twice; the last value wins"
        self.notes.append(Note(NoteKind.DUPLICATE_KEY, message, self._member))
        kept = [index for index in range(len(parts)) if index not in repeats]
        return [parts[index] for index in kept], [values[index] for index in kept]

    def _object(self, node: Value, path: KeyPath, name: str, arguments: list[Value], found: Filling) -> Node | _Frame:
        states = found.states
        if states and (found.items or found.values):
            self.incomplete = True  # the state is shown first, but comes last
        refused = self._refused(node, path, len(arguments) + len(found.items) + len(found.values) + len(states))
        if refused is not None:
            return refused
        parts, values = self._entries(found, path)
        steps: list[Part] = [Special(f"({index})") for index in range(len(arguments))]
        steps += [NO_STEP if is_dict(state) else Special(".state") for state in states]
        first, second, third = len(arguments), len(steps), len(steps) + len(found.items)
        steps += [*range(len(found.items)), *parts]

        def close(done: list[Node]) -> Node:
            entries = tuple(zip(parts, done[third:], strict=True))
            state = _merged(done[first:second])
            return Opaque(name, tuple(done[:first]), state, tuple(done[second:third]), entries)

        return _Frame(node, path, [*arguments, *states, *found.items, *values], steps, close)


def _holds_storage(key: Value) -> bool:
    return type(bare(key)) in (Made, Tuple, PersistentId) and any(True for _ in storage_references(key))


def _bytearray(value: String) -> Opaque:
    """Return a byte array, told as the call that makes one in the protocols that cannot write it."""
    return Opaque("builtins.bytearray", (value.value,) if value.value else ())


def attributes(states: list[Value]) -> list[tuple[str, Value]]:
    """Return what was set on a dict itself: the entries of the dicts given to BUILD; other states under ``state``."""
    found: dict[str, Value] = {}
    for state in states:
        value = bare(state)
        if type(value) is not Made or value.op not in DICTS:
            found["state"] = state
            continue
        inside = filling(value)
        for part, item in zip(parts_of(inside.keys)[0], inside.values, strict=False):
            found[part.text if isinstance(part, Special) else str(part)] = item
    return list(found.items())


def _merged(states: list[Node]) -> Node:
    """Return one state; where BUILD was done several times with dicts, the later entries count."""
    if len(states) < 2:
        return states[0] if states else None
    if not all(isinstance(state, Mapping) and state.attributes is None for state in states):
        return Sequence("tuple", tuple(states))
    entries: dict[Part, Node] = {}
    for state in states:
        if isinstance(state, Mapping):
            entries.update(state.entries)
    return Mapping("dict", tuple(entries.items()))
