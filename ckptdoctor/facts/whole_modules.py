"""Finds modules that were pickled whole: where their tensors are, and their state dict, told without the code.

The layout of the state and the order of the keys are those of ``torch.nn.Module.state_dict`` and
``_save_to_state_dict``, which have not changed since torch 0.1 except for ``_non_persistent_buffers_set`` (1.6).
What a class does in methods of its own (``state_dict``, ``get_extra_state``) is in its code, and so cannot be seen.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import (
    Checkpoint,
    Cycle,
    Elided,
    KeyPath,
    Mapping,
    Node,
    Opaque,
    Part,
    Role,
    Sequence,
    Special,
    StateDict,
    Tensor,
    children,
)
from ckptdoctor.checkpoint.changed_trees import derived
from ckptdoctor.facts import devices
from ckptdoctor.facts.devices import FROM_CPU, UTILS
from ckptdoctor.noun import field, noun, replace
from ckptdoctor.wording import article

# what torch.compile gives is pickled as a call of this class with the module that was compiled (since torch 2.6)
_COMPILED = "torch._dynamo.eval_frame.OptimizedModule"

# modules of these packages pack their weights when they are saved: their _save_to_state_dict is not Module's
_PACKING = (
    "torch.ao.nn.quantized.",
    "torch.ao.nn.intrinsic.quantized.",
    "torch.ao.nn.sparse.quantized.",
    "torch.nn.quantized.",
    "torch.nn.intrinsic.quantized.",
    "bitsandbytes.nn.",
)
_NOT_PACKING = "FloatFunctional"  # stands in for an operator, and has no weights

# hooks that leave keys and values as they are: this one only adds to the _metadata
_HARMLESS_HOOKS = frozenset({"torch.nn.utils.spectral_norm.SpectralNormStateDictHook"})
_HOOKS = ("_state_dict_hooks", "_state_dict_pre_hooks")
_METHODS = ("state_dict", "_save_to_state_dict")

_REBUILT_AS_SAVED = frozenset(
    {
        *(
            f"{UTILS}{name}"
            for name in ("tensor_v2", "tensor_v3", "qtensor", "sparse_tensor", "meta_tensor_no_storage")
        ),
        FROM_CPU,
    }
)
# these wrap the tensor that they rebuild, or are its form of before torch 0.4
_REBUILT_IN_A_WRAPPER = frozenset(
    {
        *(f"{UTILS}{name}" for name in ("tensor", "parameter", "parameter_with_state")),
        "torch.nn.parameter.Parameter",
        "torch._tensor._rebuild_from_type",
        "torch._tensor._rebuild_from_type_v2",
    }
)


class UnknownStateError(Exception):
    """The state dict cannot be told without the code; the text says why, as the rest of a sentence."""


@noun
class ModuleState:
    """The state dict of a module: (key, key path below the module) of each tensor, in torch's order.

    ``doubts`` say what the file shows that may change it when the code runs: hooks, a ``state_dict`` of its own.
    """

    tensors: tuple[tuple[str, KeyPath], ...]
    doubts: tuple[str, ...]


def is_module(node: Node) -> bool:
    """Return whether the object is an ``nn.Module``: its state holds ``_parameters`` and ``_modules``."""
    if not isinstance(node, Opaque):
        return False
    if _compiled(node) is not None:
        return True
    if not isinstance(node.state, Mapping):
        return False
    keys = {part for part, _ in node.state.entries}
    return "_parameters" in keys and "_modules" in keys


def _compiled(node: Opaque) -> Node:
    """Return the module that ``torch.compile`` was called with, for what it gave, or None for anything else."""
    if node.class_name != _COMPILED or not node.arguments or node.state is not None:
        return None
    inside = node.arguments[0]
    return inside if isinstance(inside, Opaque) and is_module(inside) else None


def outermost_modules(tree: Node) -> Iterator[tuple[KeyPath, Opaque, bool]]:
    """Yield (path, module, whether only dicts, lists and tuples lead to it) of modules that are in no other."""
    stack: list[tuple[KeyPath, Node, bool]] = [((), tree, True)]
    while stack:
        path, node, plain = stack.pop()
        if isinstance(node, Opaque) and is_module(node):
            yield path, node, plain
            continue
        plain = plain and (isinstance(node, Mapping) or (isinstance(node, Sequence) and node.kind in ("list", "tuple")))
        below = [((*path, part), child, plain and not isinstance(part, Special)) for part, child in children(node)]
        stack.extend(reversed([each for each in below if isinstance(each[1], (Mapping, Sequence, Opaque))]))


# ---- the state dict


@noun
class _Place:
    """A module on the way: what its keys begin with, and its path below the outermost one."""

    module: Node
    prefix: str = ""
    path: KeyPath = ()

    @property
    def name(self) -> str:
        return self.prefix.rstrip(".") or "the model itself"

    def inner(self, module: Node, name: str, *way: Part) -> _Place:
        return _Place(module, f"{self.prefix}{name}.", (*self.path, *way))


@noun(frozen=False)
class _Found:
    tensors: dict[str, KeyPath] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)


def module_state(module: Opaque) -> ModuleState:
    """Return the state dict of a module, told from its attributes and those of the modules inside it.

    Raises UnknownStateError where they do not tell it.
    """
    found = _Found()
    stack = [_Place(module)]
    while stack:
        place = stack.pop()
        stack.extend(reversed(_visited(place, found)))
    return ModuleState(tuple(found.tensors.items()), tuple(found.doubts))


def _visited(place: _Place, found: _Found) -> list[_Place]:
    """Add the tensors of one module, and return the modules directly inside it."""
    node = place.module
    if not isinstance(node, Opaque) or not is_module(node):
        raise UnknownStateError(f"{place.name} {_instead(node, 'a module that shows its parameters')}")
    compiled = _compiled(node)
    if compiled is not None:
        return [place.inner(compiled, "_orig_mod", Special("(0)"))]
    if node.class_name.startswith(_PACKING) and not node.class_name.endswith(_NOT_PACKING):
        raise UnknownStateError(
            f"{place.name} is {article(node.class_name)} {node.class_name}, which packs its weights when it is saved"
        )
    assert isinstance(node.state, Mapping)
    state = {part: child for part, child in node.state.entries if isinstance(part, str)}
    found.doubts += _doubts(place, state)
    _add(place, "_parameters", _entries(place, state, "_parameters"), found)
    gone = _names(place, state.get("_non_persistent_buffers_set"))
    buffers = [(name, child) for name, child in _entries(place, state, "_buffers") if name not in gone]
    _add(place, "_buffers", buffers, found)
    inner = [(name, child) for name, child in _entries(place, state, "_modules") if child is not None]
    return [place.inner(child, name, "_modules", name) for name, child in inner]


def _instead(node: Node, wanted: str) -> str:
    """Return what something is that should be ``wanted``."""
    if isinstance(node, Cycle):
        return "contains itself"
    if isinstance(node, Elided):
        return f"was not read ({node.reason})"
    name = getattr(node, "class_name", None) or getattr(node, "kind", None) or type(node).__name__
    return f"is {name}, not {wanted}"


def _doubts(place: _Place, state: dict[str, Node]) -> list[str]:
    doubts = []
    for name in _HOOKS:
        hooks = state.get(name)
        listed = [child for _, child in hooks.entries] if isinstance(hooks, Mapping) else [hooks]
        if any(hook is not None and getattr(hook, "class_name", "") not in _HARMLESS_HOOKS for hook in listed):
            doubts.append(f"{place.name} has hooks ({name})")
    doubts += [f"{place.name} has a {name} of its own" for name in _METHODS if name in state]
    return doubts


def _entries(place: _Place, state: dict[str, Node], name: str) -> list[tuple[str, Node]]:
    """Return the entries of ``_parameters``, ``_buffers`` or ``_modules``, whose keys are names."""
    node = state.get(name)
    if not isinstance(node, Mapping):
        raise UnknownStateError(f"{name} of {place.name} {'is missing' if node is None else _instead(node, 'a dict')}")
    entries = [(part, child) for part, child in node.entries if isinstance(part, str)]
    if len(entries) != len(node.entries):
        raise UnknownStateError(f"{name} of {place.name} has keys that are not names")
    return entries


def _names(place: _Place, node: Node) -> set[str]:
    """Return the buffers that are not saved; files of torch before 1.6 do not have the set."""
    if node is None:
        return set()
    if isinstance(node, Sequence) and all(isinstance(item, str) for item in node.items):
        return {str(item) for item in node.items}
    raise UnknownStateError(f"_non_persistent_buffers_set of {place.name} is not a set of names")


def _add(place: _Place, attribute: str, entries: list[tuple[str, Node]], found: _Found) -> None:
    for name, node in entries:
        if node is None:
            continue
        key = place.prefix + name
        if not isinstance(node, Tensor):
            raise UnknownStateError(f"{key} {_instead(node, 'a tensor')}")
        detached(node)
        if key in found.tensors:
            raise UnknownStateError(f"two of its tensors would get the key {key}")
        found.tensors[key] = (*place.path, attribute, name)


# ---- its tensors


def detached(tensor: Tensor) -> Tensor:
    """Return the tensor as ``Module.state_dict()`` gives it: no Parameter, without gradient and attributes of its own.

    Raises UnknownStateError for kinds of tensors whose classes have a say in that.
    """
    if tensor.subclass is not None:
        raise UnknownStateError(f"{tensor.key} is a tensor of the class {tensor.subclass}")
    if tensor.moved and tensor.storage is None and not tensor.parts:
        raise UnknownStateError(f"{tensor.key} is a tensor of {tensor.device} outside of all storages (D605)")
    there = tensor.storage is not None
    known = tensor.rebuild in _REBUILT_AS_SAVED or tensor.rebuild in _REBUILT_IN_A_WRAPPER
    if tensor.layout.startswith("sparse"):
        there = bool(tensor.parts)
    elif tensor.layout != "strided":
        known = False
    if not known or not (there or tensor.device == "meta"):
        raise UnknownStateError(f"{tensor.key} is a kind of tensor that only torch can take apart")
    return derived(tensor, requires_grad=False, is_parameter=False, rebuild=_rebuild(tensor))


def _rebuild(tensor: Tensor) -> str:
    """Return the function that rebuilds the tensor itself (``torch.Tensor._reduce_ex_internal``)."""
    if tensor.rebuild in _REBUILT_AS_SAVED:
        return tensor.rebuild
    return FROM_CPU if tensor.moved else devices.on_cpu(tensor)


def with_modules(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint with the state dicts of pickled modules, where they can be told without the code."""
    found = []
    for path, module, plain in outermost_modules(checkpoint.tree):
        try:
            state = module_state(module) if plain else None
        except UnknownStateError:
            continue
        if state is not None and not state.doubts:
            found.append(_state_dict(checkpoint, path, dict(state.tensors)))
    return replace(checkpoint, state_dicts=(*checkpoint.state_dicts, *found)) if found else checkpoint


def _state_dict(checkpoint: Checkpoint, path: KeyPath, places: dict[str, KeyPath]) -> StateDict:
    by_path = {tensor.path: tensor for tensor in checkpoint.tensors}
    tensors = [replace(detached(by_path[path + way]), path=(*path, key)) for key, way in places.items()]
    return StateDict(path, Role.MODEL, tuple(tensors))
