"""Finds the state dicts in a tree, and what each is for."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import KeyPath, Mapping, Node, Opaque, Role, Sequence, StateDict, Tensor, show_part
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.regex import regex

# words in a path, or at the beginning of every key, that stand for averaged weights:
# timm, YOLO, Lightning, diffusers (shadow_params), torch.optim.swa_utils
_AVERAGED = frozenset({"ema", "swa", "shadow", "averaged", "polyak", "teacherema"})

# torch.get_rng_state gives 5056 bytes, torch.cuda.get_rng_state 16 (816 before torch 1.11), torch.mps.get_rng_state 44
_RNG_BYTES = frozenset({5056, 16, 816, 44})

# of torch.optim.swa_utils.AveragedModel: how many models the average is of
_COUNTER = "n_averaged"

_WORDS = regex(r"[A-Za-z]+")
_CONTAINERS = (Mapping, Sequence, Opaque)
_BYTE = BY_NAME["uint8"]


def find_state_dicts(tree: Node) -> tuple[StateDict, ...]:
    """Return every state dict of the tree, in file order.

    Optimizers and schedulers are known by their shape, others by their tensors.

    What is inside an optimizer belongs to it; what is inside a pickled ``nn.Module`` is not a state dict.
    """
    found: list[StateDict] = []
    stack: list[tuple[KeyPath, Node]] = [((), tree)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, Mapping):
            made = _state_dict(path, node)
            if made is not None:
                found.append(made)
                if made.role is Role.OPTIMIZER or len(made.tensors) == len(node.entries):
                    continue  # what is inside belongs to it, or there is nothing but tensors
        stack.extend(reversed(_below(path, node)))
    return tuple(found)


def _below(path: KeyPath, node: Node) -> list[tuple[KeyPath, Node]]:
    """Return the containers right inside a node.

    The attributes of an object and those of a dict do not count as one.
    """
    if isinstance(node, Mapping):
        # most entries of a large dict are tensors, which an exact type tells quickly
        others = [entry for entry in node.entries if type(entry[1]) is not Tensor]
        return [((*path, part), value) for part, value in others if isinstance(value, _CONTAINERS)]
    if isinstance(node, Sequence):
        return [((*path, index), item) for index, item in enumerate(node.items) if isinstance(item, _CONTAINERS)]
    if isinstance(node, Opaque) and not _is_module(node):
        below = _below(path, node.state) if isinstance(node.state, (Mapping, Sequence)) else []
        return below + _below(path, Mapping("", node.entries)) + _below(path, Sequence("", node.items))
    return []


def _is_module(node: Opaque) -> bool:
    if not isinstance(node.state, Mapping):
        return False
    names = {part for part, _ in node.state.entries}
    return "_parameters" in names and "_modules" in names


def _state_dict(path: KeyPath, node: Mapping) -> StateDict | None:
    keys = [part for part, _ in node.entries]
    if "state" in keys and "param_groups" in keys:
        values = dict(node.entries)
        if isinstance(values["param_groups"], Sequence):
            return _made(path, Role.OPTIMIZER, node, tuple(_tensors_in(node)))
    tensors = _own([value for part, value in node.entries if type(value) is Tensor and isinstance(part, str)])
    if "last_epoch" in keys and ("base_lrs" in keys or "_last_lr" in keys or "_step_count" in keys):
        return _made(path, Role.SCHEDULER, node, tensors)
    if not tensors:
        return None
    return _made(path, _role(path, tensors, _COUNTER in keys), node, tensors)


def _own(tensors: list[Tensor]) -> tuple[Tensor, ...]:
    """Return the tensors without those that are storages which were saved on their own."""
    storages = [kind for kind in {each.rebuild for each in tensors} if kind.endswith("Storage")]
    return tuple([each for each in tensors if each.rebuild not in storages] if storages else tensors)


def _made(path: KeyPath, role: Role, node: Mapping, tensors: tuple[Tensor, ...]) -> StateDict:
    others: tuple[str, ...] = ()
    if role is Role.OPTIMIZER or len(tensors) < len(node.entries):  # else each entry is one of the tensors
        others = tuple([part for part, value in node.entries if type(value) is not Tensor and isinstance(part, str)])
    metadata = dict(node.attributes.entries).get("_metadata") if node.attributes is not None else None
    return StateDict(path, role, tensors, others, metadata if isinstance(metadata, Mapping) else None)


def _role(path: KeyPath, tensors: tuple[Tensor, ...], counted: bool) -> Role:
    if all(map(_is_rng, tensors)):
        return Role.RNG
    if any(word in _AVERAGED for part in path for word in _words(show_part(part))):
        return Role.EMA
    if all(not _AVERAGED.isdisjoint(_words(tensor.key.split(".", 1)[0])) for tensor in tensors):
        return Role.EMA
    if counted and _COUNTER in [tensor.path[-1] for tensor in tensors]:
        return Role.EMA
    return Role.MODEL


def _words(text: str) -> list[str]:
    return _WORDS.findall(text.lower())


def _is_rng(tensor: Tensor) -> bool:
    if tensor.dtype is not _BYTE or len(tensor.shape) != 1 or tensor.storage is None:
        return False
    named = any("rng" in _words(show_part(part)) or "random" in _words(show_part(part)) for part in tensor.path)
    return named or tensor.shape[0] in _RNG_BYTES


def _tensors_in(tree: Node) -> Iterator[Tensor]:
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Tensor):
            yield node
        elif isinstance(node, Mapping):
            stack.extend([value for _, value in reversed(node.entries)])
        elif isinstance(node, Sequence):
            stack.extend(reversed(node.items))
        elif isinstance(node, Opaque):
            stack.extend([value for _, value in reversed(node.entries)])
            stack.extend(reversed(node.items))
            stack.append(node.state)
            stack.extend(reversed(node.arguments))
