"""Finds the names that ``torch.load(weights_only=True)`` refuses: why they are there, and where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Union

from ckptdoctor.checkpoint import Checkpoint, GlobalName, KeyPath, Mapping, Named, Node, Opaque, Part, Sequence, Tensor
from ckptdoctor.checkpoint import children as children_of
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.facts.devices import names_of_arrays
from ckptdoctor.facts.globals import is_allowed, is_dangerous, is_standard, modern, package
from ckptdoctor.facts.numpy_values import held_values
from ckptdoctor.facts.plain_data import NotPlainError, as_plain, is_path
from ckptdoctor.facts.whole_modules import is_module
from ckptdoctor.noun import noun


class BlockedCause(Enum):
    """Why a refused name is in the file. Each name has one cause, the first that fits."""

    DANGEROUS = "dangerous"  # it can run code
    MODULE = "module"  # it belongs to an nn.Module that was saved whole
    DEVICE = "device"  # it makes an array that stands for a tensor of a device without storages
    NUMPY = "numpy"
    PATH = "path"  # a class of pathlib
    FOREIGN = "foreign"  # a class of the user's script or of a package that is neither Python's nor torch's
    OTHER = "other"


@noun
class BlockedPlace:
    """An object, and where it stands in the tree."""

    path: KeyPath
    node: Node


@noun
class Blocked:
    """A refused name: as Python 3 calls it, as the file names it first, why it is there, and where it is used."""

    path: str
    first: GlobalName
    cause: BlockedCause
    places: tuple[BlockedPlace, ...]


@cached_by_identity
def blocked_globals(checkpoint: Checkpoint) -> tuple[Blocked, ...]:
    """Every name that is refused, in file order; of NumPy's own files, which torch never reads, the dangerous."""
    firsts: dict[str, GlobalName] = {}
    aliases: dict[str, str] = {}
    for each in checkpoint.globals:
        module, name = modern(each.module, each.name)
        if is_dangerous(module, name) if of_numpy(checkpoint) else not is_allowed(module, name):
            path = f"{module}.{name}"
            firsts.setdefault(path, each)
            aliases[path] = aliases[each.full] = path
            if path == "builtins.frozenset":  # the one such class that the tree shows as a plain container
                aliases["frozenset"] = path
    if not firsts:
        return ()
    places: dict[str, list[BlockedPlace]] = {path: [] for path in firsts}
    in_modules: dict[str, bool] = dict.fromkeys(firsts, True)
    for full, place, in_module in _uses(checkpoint.tree, aliases):
        places[full].append(place)
        in_modules[full] &= in_module
    for_devices = names_of_arrays(checkpoint)
    found = []
    for path, first in firsts.items():
        shown = bool(places[path])
        cause = _cause(first, shown and in_modules[path], not shown and path in for_devices)
        found.append(Blocked(path, first, cause, tuple(places[path])))
    return tuple(found)


def of_numpy(checkpoint: Checkpoint) -> bool:
    """Whether the file is NumPy's own: ``numpy.load(allow_pickle=True)`` is what unpickles it."""
    return checkpoint.format in ("NumPy array", "NumPy archive")


def blocked_by(checkpoint: Checkpoint, cause: BlockedCause) -> tuple[Blocked, ...]:
    """The refused names that are there for this cause."""
    return tuple([each for each in blocked_globals(checkpoint) if each.cause is cause])


def _cause(first: GlobalName, in_modules: bool, for_device: bool) -> BlockedCause:
    module, name = modern(first.module, first.name)
    if is_dangerous(module, name):
        return BlockedCause.DANGEROUS
    if in_modules:
        return BlockedCause.MODULE
    if for_device:
        return BlockedCause.DEVICE
    if is_path(module, name):
        return BlockedCause.PATH
    top = package(module)
    if top == "numpy":
        return BlockedCause.NUMPY
    if top == "torch" or is_standard(module):
        return BlockedCause.OTHER
    return BlockedCause.FOREIGN


# the way from the root to a node as nested pairs (way to its parent, last step); a key path only where one is wanted
_Trail = Union[tuple[Any, Part], None]


def _uses(tree: Node, aliases: dict[str, str]) -> Iterator[tuple[str, BlockedPlace, bool]]:
    """(name, place, inside an nn.Module) for every node that names one of ``aliases``, in file order."""
    stack: list[tuple[Node, _Trail, bool]] = [(tree, None, False)]
    while stack:
        node, trail, in_module = stack.pop()
        if isinstance(node, Opaque):
            in_module = in_module or is_module(node)
        full = aliases.get(_name(node))
        if full is not None:
            yield full, BlockedPlace(_path(trail), node), in_module
        if not isinstance(node, Tensor):
            below = [(child, (trail, part), in_module) for part, child in children_of(node) if _speaks(child, aliases)]
            stack.extend(reversed(below))


def _speaks(node: Node, aliases: dict[str, str]) -> bool:
    """Whether a node may name something or hold one that does: state dicts, and most else in a checkpoint, do not."""
    if isinstance(node, Mapping):
        return node.kind in aliases or node.attributes is not None or any(_is_named(each) for _, each in node.entries)
    return _is_named(node)


def _is_named(node: Node) -> bool:
    if isinstance(node, Tensor):
        return node.subclass is not None
    return isinstance(node, (Mapping, Sequence, Opaque, Named))


def _name(node: Node) -> str:
    if isinstance(node, Opaque):
        return node.class_name
    if isinstance(node, (Mapping, Sequence)):
        return node.kind
    if isinstance(node, Named):
        return node.name
    return node.subclass or "" if isinstance(node, Tensor) else ""


def _path(trail: _Trail) -> KeyPath:
    parts: list[Part] = []
    while trail is not None:
        trail, part = trail
        parts.append(part)
    return tuple(reversed(parts))


def outermost(blocked: Iterable[Blocked]) -> list[BlockedPlace]:
    """The places of these names that lie in no other of their places, each once."""
    places = {place.path: place for each in blocked for place in each.places}
    return [place for path, place in places.items() if not _within(path, places)]


def _within(path: KeyPath, places: dict[KeyPath, BlockedPlace]) -> bool:
    return any(path[:end] in places for end in range(len(path)))


# ---- what the objects become: arrays tensors, and others the plain data that they are


@noun
class PlainForms:
    """Arrays that become tensors, what becomes plain data (and which), and what stays, with the reason."""

    tensors: tuple[BlockedPlace, ...]
    plain: tuple[tuple[BlockedPlace, object], ...]
    stuck: tuple[tuple[BlockedPlace, str], ...]


def plain_forms(tree: Node, places: Iterable[BlockedPlace]) -> PlainForms:
    """What these objects of the tree become."""
    places = list(places)
    free = _free(tree, [place.path for place in places])
    tensors: list[BlockedPlace] = []
    plain: list[tuple[BlockedPlace, object]] = []
    stuck: list[tuple[BlockedPlace, str]] = []
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
    return PlainForms(tuple(tensors), tuple(plain), tuple(stuck))


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
