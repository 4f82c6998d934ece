"""Compares two checkpoints as contents: structure, keys, plain values, tensors, and which of them share storages."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Several
from contextlib import contextmanager
from struct import pack
from typing import Any

from ckptdoctor.checkpoint import (
    Checkpoint,
    KeyPath,
    Mapping,
    Node,
    Opaque,
    Part,
    Sequence,
    Special,
    Storage,
    Tensor,
    show_part,
    show_path,
)
from ckptdoctor.checkpoint.changed_trees import nodes_below
from ckptdoctor.checkpoint.tensor import same_facts
from ckptdoctor.errors import CkptDoctorError, WriteError
from ckptdoctor.wording import format_name, plural

# what must agree of two tensors, with the word for it; storages and parts are compared on their own
_OF_TENSORS = (
    *("path", "dtype", "shape", "stride", "offset", "device", "requires_grad", "is_parameter", "rebuild", "layout"),
    *("subclass", "details", "values"),
)


def first_difference(wanted: Checkpoint, got: Checkpoint) -> str | None:
    """Return the first difference between two checkpoints in words, None where there is none.

    Storages may have other keys, as long as the same tensors share them. What is around the contents (names of
    globals, notes, places of bytes) is not compared.
    """
    if wanted.format != got.format:
        return f"it is a {format_name(got.format)} file instead of {format_name(wanted.format)}"
    if wanted.metadata != got.metadata:
        return "its metadata differs"
    ties = _Ties()
    return (
        _tree_difference(wanted.tree, got.tree, ties) or _state_dict_difference(wanted, got) or ties.unlike(wanted, got)
    )


class _Ties:
    """Which storage of one checkpoint corresponds to which of the other: one to one."""

    def __init__(self) -> None:
        self._there: dict[str, str] = {}
        self._back: dict[str, str] = {}

    def agree(self, wanted: Storage | None, got: Storage | None) -> bool:
        """Return whether two storages are alike, and no other storage corresponds to either."""
        if wanted is None or got is None:
            return wanted is got
        if (
            self._there.setdefault(wanted.key, got.key) != got.key
            or self._back.setdefault(got.key, wanted.key) != wanted.key
        ):
            return False
        same = wanted.dtype is got.dtype or wanted.dtype == got.dtype  # as a rule there is one object for all
        return same and wanted.nbytes == got.nbytes and wanted.device == got.device

    def unlike(self, wanted: Checkpoint, got: Checkpoint) -> str | None:
        """The storages that no tensor views must be as many, too."""
        if len(wanted.storages) != len(got.storages):
            return f"it has {plural(len(got.storages), 'storage')} instead of {len(wanted.storages)}"
        return None


def storage_pairs(wanted: Checkpoint, got: Checkpoint) -> dict[str, str]:
    """Return the key of each storage of ``got`` → key of the storage of ``wanted`` that the same tensors view."""
    pairs: dict[str, str] = {}
    _pair(wanted.tensors, got.tensors, pairs)
    return pairs


def _pair(wanted: Several[Tensor], got: Several[Tensor], pairs: dict[str, str]) -> None:
    for one, other in zip(wanted, got, strict=True):
        if one.storage is not None and other.storage is not None:
            pairs[other.storage.key] = one.storage.key
        if one.parts or other.parts:
            _pair(one.parts, other.parts, pairs)


def _tree_difference(wanted: Node, got: Node, ties: _Ties) -> str | None:
    """Walk both trees side by side, without recursion; ``trail`` is spelt out only where something differs."""
    stack: list[tuple[Node, Node, Any]] = [(wanted, got, None)]
    while stack:
        one, other, trail = stack.pop()
        found = _node_difference(one, other, ties)
        if found is not None:
            return f"at {show_path(_path(trail))} {found}"
        if not isinstance(one, (Mapping, Sequence, Opaque)):
            continue
        for slot, (mine, its) in enumerate(zip(nodes_below(one), nodes_below(other), strict=True)):
            if not isinstance(mine, Tensor):
                stack.append((mine, its, (trail, one, slot)))
                continue
            if isinstance(its, Tensor):
                found = _tensor_difference(mine, its, ties)
            else:
                found = _node_difference(mine, its, ties)
            if found is not None:
                return f"at {show_path(_path((trail, one, slot)))} {found}"
    return None


def _node_difference(wanted: Node, got: Node, ties: _Ties) -> str | None:
    if type(wanted) is not type(got):
        return f"there is {_kind(got)} instead of {_kind(wanted)}"
    if isinstance(wanted, Tensor) and isinstance(got, Tensor):
        return _tensor_difference(wanted, got, ties)
    if isinstance(wanted, Mapping) and isinstance(got, Mapping):
        if wanted.kind != got.kind or (wanted.attributes is None) != (got.attributes is None):
            return f"there is a {got.kind} instead of a {wanted.kind}, or its attributes differ"
        return _keys_difference(_keys(wanted), _keys(got))
    if isinstance(wanted, Sequence) and isinstance(got, Sequence):
        same = wanted.kind == got.kind and len(wanted.items) == len(got.items)
        return (
            None
            if same
            else f"there is a {got.kind} of {len(got.items)} instead of {wanted.kind} of {len(wanted.items)}"
        )
    if isinstance(wanted, Opaque) and isinstance(got, Opaque):
        return _object_difference(wanted, got)
    if isinstance(wanted, float) and isinstance(got, float):  # NaN equals itself here, and 0.0 is not -0.0
        return None if pack("d", wanted) == pack("d", got) else f"there is {got!r} instead of {wanted!r}"
    return None if wanted == got else "the value differs"


def _object_difference(wanted: Opaque, got: Opaque) -> str | None:
    if wanted.class_name != got.class_name:
        return f"there is a {got.class_name} instead of a {wanted.class_name}"
    if (len(wanted.arguments), len(wanted.items)) != (len(got.arguments), len(got.items)):
        return f"the {wanted.class_name} is made differently"
    return _keys_difference([part for part, _ in wanted.entries], [part for part, _ in got.entries])


def _keys(node: Mapping) -> list[Part]:
    return [part for part, _ in node.entries]


def _keys_difference(wanted: list[Part], got: list[Part]) -> str | None:
    if wanted == got and all(type(one) is type(other) for one, other in zip(wanted, got, strict=True)):
        return None
    for one, other in zip(wanted, got, strict=False):
        if one != other or type(one) is not type(other):
            return f'there is the key "{show_part(other)}" instead of "{show_part(one)}"'
    return f"it has {plural(len(got), 'key')} instead of {len(wanted)}"


def _tensor_difference(wanted: Tensor, got: Tensor, ties: _Ties) -> str | None:
    if wanted.path != got.path or not same_facts(wanted, got):
        for name in _OF_TENSORS:
            one, other = getattr(wanted, name), getattr(got, name)
            if one != other:
                if name == "values":
                    return "the tensor has other values in the pickle"
                return f"the tensor's {name} is {_shown(other)} instead of {_shown(one)}"
    if not ties.agree(wanted.storage, got.storage):
        return "the tensor is on another storage, or on one with another size or device"
    if not wanted.parts and not got.parts:  # as nearly all have none
        return None
    if len(wanted.parts) != len(got.parts):
        return f"the tensor has {plural(len(got.parts), 'part')} instead of {len(wanted.parts)}"
    for one, other in zip(wanted.parts, got.parts, strict=True):
        found = _tensor_difference(one, other, ties)
        if found is not None:
            return found
    return None


def _state_dict_difference(wanted: Checkpoint, got: Checkpoint) -> str | None:
    mine = [(each.path, each.role, len(each.tensors), each.others) for each in wanted.state_dicts]
    its = [(each.path, each.role, len(each.tensors), each.others) for each in got.state_dicts]
    if mine != its:
        return f"its state dicts are {_named(got)} instead of {_named(wanted)}"
    if len(wanted.tensors) != len(got.tensors):
        return f"it has {plural(len(got.tensors), 'tensor')} instead of {len(wanted.tensors)}"
    return None


def _named(checkpoint: Checkpoint) -> str:
    return ", ".join(f"{show_path(each.path)} ({each.role.value})" for each in checkpoint.state_dicts) or "none"


def _shown(value: object) -> str:
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else str(value)


def _kind(node: Node) -> str:
    for attribute in ("class_name", "kind"):
        found = getattr(node, attribute, None)
        if isinstance(found, str):
            return f"a {found}"
    return "nothing" if node is None else f"a {type(node).__name__}"


def _path(trail: Any) -> KeyPath:
    """Return the way through ``nodes_below`` as a key path."""
    parts: list[Part] = []
    while trail is not None:
        trail, node, slot = trail
        parts.append(_part(node, slot))
    return tuple(reversed(parts))


def _part(node: Node, slot: int) -> Part:
    if isinstance(node, Mapping):
        return node.entries[slot][0] if slot < len(node.entries) else Special("(attributes)")
    if isinstance(node, Opaque):
        after = slot - len(node.arguments)
        if after <= 0:
            return Special(".state") if after == 0 else Special(f"({slot})")
        after -= 1
        return after if after < len(node.items) else node.entries[after - len(node.items)][0]
    return slot


# ---- what was written, opened again as any file is: it can be read, and holds what it was to hold


@contextmanager
def read_back() -> Iterator[None]:
    """Read an output: what fails in it raises WriteError, and the output is thrown away."""
    try:
        yield
    except WriteError:
        raise
    except CkptDoctorError as error:
        raise WriteError(f"The output cannot be read back and was discarded: {error.message}") from error


def require_same(wanted: Checkpoint, written: Checkpoint) -> None:
    """Raise WriteError, with the place, where the output holds something else than what was planned."""
    require_right(first_difference(wanted, written))


def require_right(wrong: str | None) -> None:
    """Raise WriteError where something is wrong with the output: what, as the end of a sentence."""
    if wrong is not None:
        raise WriteError(f"The output differs from the plan, and was discarded: {wrong}.")
