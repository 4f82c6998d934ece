"""The state dict of a module in TorchScript: its tensors by name, as ``torch.jit.load(FILE).state_dict()`` has them."""

from __future__ import annotations

from dataclasses import field, replace

from ckptdoctor.checkpoint import Cycle, Mapping, Node, Opaque, Part, Special, Tensor, walk
from ckptdoctor.errors import HostileError
from ckptdoctor.formats.torchscript.classes import Attributes, Classes
from ckptdoctor.noun import noun

# what every module has beside its tensors; None, an empty list and the like say nothing either
_USUAL = frozenset({"training", "_is_full_backward_hook"})

_MOST_MODULES = 1_000_000
# characters of the keys of all modules together: one module in many places, under long names, has keys without an end
_MOST_TEXT = 64 << 20


@noun(frozen=False)
class State:
    """``tensors`` of the state dict by key, ``others``: further tensors among the attributes.

    ``plain`` are attributes that hold no tensor, and ``packed`` modules whose own code packs what they hold.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    others: dict[str, Tensor] = field(default_factory=dict)
    plain: list[str] = field(default_factory=list)
    packed: list[str] = field(default_factory=list)


def state_of(module: Opaque, classes: Classes) -> State:
    """The state of a module and all inside it: of each the parameters, then the buffers, then the modules in it."""
    found = State()
    stack: list[tuple[str, Opaque]] = [("", module)]
    text = 0
    for _ in range(_MOST_MODULES):
        if not stack:
            break
        prefix, node = stack.pop()
        if not isinstance(node.state, Mapping):
            if node.state is not None:
                found.packed.append(prefix.rstrip(".") or "the module itself")
                _keep(found, prefix + "state", node.state)
            continue
        entries = [(str(part), value) for part, value in node.state.entries]
        text += sum([len(prefix) + len(name) for name, _ in entries])
        if text > _MOST_TEXT:
            raise HostileError("The modules lie in each other in so many ways that their names have no end.")
        known = classes.find(node.class_name)
        _tensors(found, prefix, entries, known)
        inner = [(f"{prefix}{name}.", value) for name, value in entries if _is_module(value, classes)]
        stack += [(name, value) for name, value in reversed(inner) if isinstance(value, Opaque)]
    _without_copies(found)
    return found


def _is_module(value: Node, classes: Classes) -> bool:
    if not isinstance(value, Opaque) or not value.class_name.startswith("__torch__."):
        return False
    return classes.find(value.class_name) is not None


def _tensors(found: State, prefix: str, entries: list[tuple[str, Node]], known: Attributes | None) -> None:
    buffers: list[tuple[str, Tensor]] = []
    for name, value in entries:
        key = prefix + name
        if not isinstance(value, Tensor):
            if name not in _USUAL and value is not None and not _names_module(value):
                _keep(found, key, value)
        elif known is not None and name in known.parameters:
            found.tensors[key] = replace(value, path=(key,), is_parameter=False, requires_grad=False)
        elif known is None or known.buffers is None or name in known.buffers:
            buffers.append((key, value))
        else:
            _keep(found, key, value)
    for key, value in buffers:
        found.tensors[key] = replace(value, path=(key,), is_parameter=False, requires_grad=False)


def _names_module(value: Node) -> bool:
    return isinstance(value, Opaque) and value.class_name.startswith("__torch__.") and isinstance(value.state, Mapping)


def _keep(found: State, key: str, value: Node) -> None:
    """The tensors in an attribute, each under the attribute's key and the way to it."""
    inside = [(path, each) for path, each in walk(value) if isinstance(each, Tensor)]
    if not inside and not isinstance(value, Cycle):
        found.plain.append(key)
    for path, tensor in inside:
        name = ".".join([key, *[_step(part) for part in path if not _is_call(part)]])
        found.others[name] = replace(tensor, path=(Special(".attributes"), name))


def _is_call(part: Part) -> bool:
    """Whether a step leads to an argument of a call: TorchScript marks the types of lists by calls."""
    return isinstance(part, Special) and part.text.startswith("(")


def _step(part: Part) -> str:
    return part.text.lstrip(".") if isinstance(part, Special) else str(part)


def _without_copies(found: State) -> None:
    """Leave out attributes that are the tensors of the state dict once more, as the lists of recurrent modules are."""
    known = {each.view_id or id(each) for each in found.tensors.values()}
    found.others = {name: each for name, each in found.others.items() if (each.view_id or id(each)) not in known}
