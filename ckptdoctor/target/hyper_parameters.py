"""Reads what Lightning keeps of the arguments of its model, as plain values: nothing of it is made or run.

Source: ``lightning.pytorch.core.saving`` (``_load_state``) and ``dump_checkpoint`` of its checkpoint connector, 2.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Mapping, Node, Opaque, Part, Sequence
from ckptdoctor.facts.optimizers import LIGHTNING, top
from ckptdoctor.facts.plain_data import NotPlainError, as_plain
from ckptdoctor.remote.addresses import shown
from ckptdoctor.target.saved import DATAMODULE, Record, Saved

_OWN = "hyper_parameters"
_PAST = ("hparams", "module_arguments")  # of Lightning before 1.0
_NAME = "hparams_name"  # the argument that all of them were, or "kwargs"
_DICTS = frozenset({"dict", "collections.OrderedDict", "collections.defaultdict"})
_NAMESPACES = frozenset({"argparse.Namespace", "types.SimpleNamespace"})
_CONFIGS = {"omegaconf.dictconfig.DictConfig": "_content", "omegaconf.listconfig.ListConfig": "_content"}
_NODES = "omegaconf.nodes."
_UNSET = "???"  # omegaconf's sign for a value that is to be given
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
# under which keys settings name a class or function that is imported and called: Hydra, LightningCLI, latent-diffusion
_CALLED = frozenset({"_target_", "__target__", "class_path", "target", "cls", "_instantiator"})
_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")
_DEPTH = 100  # nesting that no configuration has
_STEPS = 100_000  # values that one argument may be made of, when every reference in it is followed


def saved_arguments(checkpoint: Checkpoint) -> Saved | None:
    """Return the arguments that the file keeps, or None where it keeps none, and Lightning did not write it."""
    entries = top(checkpoint)
    lightning = LIGHTNING in entries
    values: dict[str, object] = {}
    places: dict[str, str] = {}
    unfit: dict[str, str] = {}
    for place in (_OWN, *(_PAST if lightning else ()), DATAMODULE):
        node = entries.get(place)
        root = _as_root(node)
        for name, child in _entries(node):
            if name in places:
                continue
            places[name] = place
            try:
                values[name] = _inert(_resolved(_plain(child, _is_config(node)), root, iter(range(_STEPS))))
            except NotPlainError as error:
                unfit[name] = str(error)
    if not places and not lightning:
        return None
    called = entries.get(_NAME)
    own = {name: value for name, value in values.items() if places[name] != DATAMODULE}
    whole = called if isinstance(called, str) and called != "kwargs" and own else None
    return Saved(shown(checkpoint.path), values, places, unfit, whole, Record(own), lightning)


def _entries(node: Node) -> Iterator[tuple[str, Node]]:
    found = _content(node)
    return ((part, child) for part, child in found if isinstance(part, str))


def _content(node: Node) -> tuple[tuple[Part, Node], ...]:
    """Return the entries of a dict, a Namespace or a configuration."""
    if isinstance(node, Mapping):
        return node.entries
    if isinstance(node, Opaque) and isinstance(node.state, Mapping):
        if node.class_name in _NAMESPACES:
            return node.state.entries
        inside = dict(node.state.entries).get(_CONFIGS.get(node.class_name, ""))
        return inside.entries if isinstance(inside, Mapping) else ()
    return ()


def _is_config(node: Node) -> bool:
    return isinstance(node, Opaque) and node.class_name in _CONFIGS


class _Reference(str):
    """A text of a configuration that stands for another of its values: ``${model.width}``."""


def _plain(node: Node, config: bool, depth: int = 0) -> object:
    """Return the value as ``as_plain`` gives it, where what had attributes still has them.

    ``config``: inside of omegaconf.
    """
    if depth > _DEPTH:
        raise NotPlainError(f"it is nested more than {_DEPTH} levels deep")
    if isinstance(node, Mapping) and (node.kind in _DICTS or node.kind.endswith(".AttributeDict")):
        found = {_key(part): _plain(child, config, depth + 1) for part, child in node.entries}
        return found if node.kind in _DICTS and not config else Record(found)
    if isinstance(node, Sequence) and node.kind in ("list", "tuple"):
        items = [_plain(each, config, depth + 1) for each in node.items]
        return items if node.kind == "list" else tuple(items)
    if isinstance(node, Opaque):
        return _object(node, config, depth)
    if config and isinstance(node, str):
        if node == _UNSET:
            raise NotPlainError("it was never set (???)")
        return _Reference(node) if "${" in node else node
    return as_plain(node)


def _object(node: Opaque, config: bool, depth: int) -> object:
    state = dict(node.state.entries) if isinstance(node.state, Mapping) else {}
    if node.class_name in _NAMESPACES:
        as_plain(node)  # raises for one that was not written in the usual way
        return Record({_key(part): _plain(child, config, depth + 1) for part, child in state.items()})
    attribute = "_val" if node.class_name.startswith(_NODES) else _CONFIGS.get(node.class_name)
    if attribute is None or attribute not in state:
        return as_plain(node)
    return _plain(state[attribute], True, depth + 1)


def _key(part: Part) -> str | int:
    if not isinstance(part, (str, int)):
        raise NotPlainError("it holds a dict whose keys are neither text nor integers")
    return part


def _as_root(node: Node) -> object:
    """Return what references in a configuration are followed from."""
    if not _is_config(node):
        return None
    found = Record()
    for name, child in _entries(node):
        try:
            found[name] = _plain(child, config=True)
        except NotPlainError:
            continue
    return found


def _resolved(value: object, root: object, steps: Iterator[int], depth: int = 0) -> object:
    """Return the value with what its references stand for. Raises NotPlainError for those that compute something."""
    root = value if root is None else root
    if depth > _DEPTH or next(steps, None) is None:
        raise NotPlainError("its references never end")
    if isinstance(value, _Reference):
        match = _REFERENCE.fullmatch(value)
        if match is None:
            raise NotPlainError(f"it is computed from other settings: {value[:_DEPTH]}")
        return _resolved(_at(root, match[1]), root, steps, depth + 1)
    if isinstance(value, dict):
        return type(value)({key: _resolved(each, root, steps, depth + 1) for key, each in value.items()})
    if isinstance(value, (list, tuple)):
        return type(value)([_resolved(each, root, steps, depth + 1) for each in value])
    return value


def _inert(value: object) -> object:
    """Return the value itself.

    Raises NotPlainError for one that names what is to be called: who reads it would run it.
    """
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, dict):
            for key, inner in each.items():
                if key in _CALLED and isinstance(inner, str) and _DOTTED.fullmatch(inner):
                    raise NotPlainError(f"it names a callable, {inner[:_DEPTH]} ({key})")
            stack.extend(each.values())
        elif isinstance(each, (list, tuple)):
            stack.extend(each)
    return value


def _at(root: object, path: str) -> object:
    for step in path.split("."):
        if not isinstance(root, dict) or step not in root:
            raise NotPlainError(f"it refers to {path}, which is missing")
        root = root[step]
    return root
