"""Says what the contents are once their pickle is written again: strings of Python 2 and old tensors change."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterator

from ckptdoctor.checkpoint import (
    Checkpoint,
    Cycle,
    GlobalName,
    KeyPath,
    Mapping,
    Node,
    Opaque,
    Part,
    Sequence,
    Special,
    Tensor,
    show_part,
)
from ckptdoctor.checkpoint.changed_trees import derived, with_tree
from ckptdoctor.checkpoint.first_bytes import pickle_protocol, with_default_protocol
from ckptdoctor.edits import Repickle
from ckptdoctor.edits.applied.act import Act
from ckptdoctor.edits.fix import Change
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.numpy_values import BYTES, array_values, of_python_2
from ckptdoctor.noun import replace

_OLD, _TODAY = "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2"
_PROTOCOL = 2  # what torch.save pickles with
_ENCODE = ("_codecs", "encode")  # what protocol 2 writes bytes with


def repickle(checkpoint: Checkpoint, edit: Repickle) -> Checkpoint:
    """Return the checkpoint after the edit. Raises RefusedError where two keys would become one."""
    old = of_python_2(checkpoint)
    changer = _Changer(edit.encoding if old else None, old)
    tree = changer.node(checkpoint.tree)
    made = with_tree(checkpoint, tree) if tree is not checkpoint.tree else checkpoint
    if changer.made_bytes and all((each.module, each.name) != _ENCODE for each in made.globals):
        made = replace(made, globals=(*made.globals, GlobalName(*_ENCODE, "", 0)))
    container = made.container
    return replace(made, container=None if container is None else with_default_protocol(container))


class _Changer:
    """Changes what must change, and keeps every other node as it is."""

    def __init__(self, encoding: str | None, of_python_2: bool) -> None:
        self._encoding = encoding
        self._of_python_2 = of_python_2
        self.made_bytes = False  # whether the new pickle has bytes that are no strings of Python 2

    def node(self, node: Node) -> Node:
        """Return the node; no tree is more than 128 levels deep."""
        if isinstance(node, Tensor):
            return self._tensor(node)
        if isinstance(node, bytes):
            return self._text(node)
        if isinstance(node, Mapping):
            return self._mapping(node)
        if isinstance(node, Sequence):
            items = tuple([self.node(item) for item in node.items])
            return node if _same(items, node.items) else derived(node, items=items)
        if isinstance(node, Opaque):
            return self._object(node)
        return Cycle(self._path(node.path)) if isinstance(node, Cycle) and self._encoding else node

    def _text(self, value: bytes) -> Node:
        self.made_bytes |= bool(value) and not self._of_python_2
        if self._encoding is None:
            return value
        try:
            value.decode("utf-8")
        except UnicodeDecodeError:
            return value.decode(self._encoding)
        return value

    def _part(self, part: Part) -> Part:
        if not isinstance(part, Special) or not part.text.startswith(BYTES):
            return part
        self.made_bytes |= not self._of_python_2
        if self._encoding is None:
            return part
        try:
            value = literal_eval(part.text)
        except (ValueError, SyntaxError):
            return part
        text = self._text(value) if isinstance(value, bytes) else part
        return text if isinstance(text, str) else part

    def _path(self, path: KeyPath) -> KeyPath:
        return path if self._encoding is None else tuple([self._part(part) for part in path])

    def _tensor(self, tensor: Tensor) -> Tensor:
        path, rebuild = self._path(tensor.path), _TODAY if tensor.rebuild == _OLD else tensor.rebuild
        parts = tuple([self._tensor(part) for part in tensor.parts])
        if path == tensor.path and rebuild == tensor.rebuild and _same(parts, tensor.parts):
            return tensor
        return derived(tensor, path=path, rebuild=rebuild, parts=parts)

    def _mapping(self, node: Mapping) -> Mapping:
        entries = self._entries(node.entries)
        attributes = node.attributes
        if attributes is not None:
            attributes = self._mapping(attributes)
        if entries is node.entries and attributes is node.attributes:
            return node
        return derived(node, entries=entries, attributes=attributes)

    def _entries(self, entries: tuple[tuple[Part, Node], ...]) -> tuple[tuple[Part, Node], ...]:
        made = tuple([(self._part(part), self.node(child)) for part, child in entries])
        if all(new[0] is old[0] and new[1] is old[1] for new, old in zip(made, entries, strict=True)):
            return entries
        seen: set[Part] = set()
        for part, _ in made:
            if part in seen:
                raise RefusedError(f'Two keys would both become "{show_part(part)}"; drop or rename one of them.')
            seen.add(part)
        return made

    def _object(self, node: Opaque) -> Opaque:
        values = array_values(node)
        arguments = [self.node(each) for each in node.arguments]
        state = node.state if node.state is None else self.node(node.state)
        if values is not None:
            self.made_bytes = True
            if isinstance(state, Sequence):
                state = derived(state, items=(*state.items[:-1], values))
            else:
                arguments[-1] = values
        items = tuple([self.node(each) for each in node.items])
        entries = self._entries(node.entries)
        return derived(node, arguments=tuple(arguments), state=state, items=items, entries=entries)


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return all(mine is its for mine, its in zip(one, other, strict=True))


def _told(checkpoint: Checkpoint, edit: Repickle, after: Checkpoint) -> Iterator[Change]:
    protocol = pickle_protocol(checkpoint.container) or 0
    newer = protocol > _PROTOCOL
    yield Change("repickle", ((f"pickle protocol {protocol}", f"protocol {_PROTOCOL}"),) if newer else (), ())


REPICKLE = Act(repickle, _told)
