"""The rules about refused classes share how they name classes and places, and plain data as a fix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Table

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, at, children, show_path
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.sharing import lost_without
from ckptdoctor.edits import Convert, Drop, Edit, Fix, MakeTensors, Replace, Safety
from ckptdoctor.facts.globals import (
    NEEDS_IMPORT,
    Blocked,
    BlockedCause,
    BlockedPlace,
    blocked_by,
    blocked_globals,
    is_dangerous,
    is_harmless,
    outermost,
)
from ckptdoctor.facts.plain_data import NotPlainError, PlainForms, as_plain, plain_forms
from ckptdoctor.findings import Location
from ckptdoctor.noun import noun
from ckptdoctor.rules.kit import allowing, wording
from ckptdoctor.rules.kit.refusals import unsupported_global

MOST_LINES = 3


def where(place: BlockedPlace) -> str:
    """Return the place as people read it; the root is the whole checkpoint."""
    return show_path(place.path) if place.path else "the checkpoint itself"


def listed_places(found: Sequence[BlockedPlace]) -> str:
    """Return where the objects are, abridged: ``args, hparams/path, …``."""
    return wording.abridged([where(place) for place in found])


def classes(blocked: Iterable[Blocked]) -> str:
    """Return the names, abridged: ``argparse.Namespace and functools.partial``."""
    return listed_names([each.path for each in blocked])


def listed_names(names: Sequence[str]) -> str:
    """Return the same for names alone."""
    return wording.listed(names) if len(names) <= wording.SHOWN else wording.abridged(names)


def refusal_lines(blocked: Sequence[Blocked]) -> tuple[str, ...]:
    """Return how torch refuses them: it stops at the first, and goes on to the next once that is allowed."""
    return tuple(dict.fromkeys([unsupported_global(each.first) for each in blocked]))[:MOST_LINES]


def trusting(blocked: Sequence[Blocked], sentence: str) -> str:
    """Return the sentence with the call that makes torch accept these classes.

    Of a function that may act, it is a warning.
    """
    acting = [each.path for each in blocked if _may_act(each)]
    if acting:
        called = f"{'it' if len(acting) == 1 else 'them'} while the file is loaded"
        return (
            f"Do not allow {listed_names(acting)}: torch would call {called}, and only the code of that "
            "shows what it does."
        )
    stuck = allowing.unfillable(blocked)
    if stuck:
        return (
            f"Allowing {listed_names(stuck)} does not help: with weights_only=True torch fills only lists and dicts "
            "themselves. ckptdoctor.load(FILE) opens the file and runs nothing."
        )
    nameless = allowing.unnameable(blocked)
    if nameless:
        return f"No code can name {listed_names(nameless)}, so nothing makes torch accept it."
    own = allowing.own_classes(blocked)
    first = f" Define or import {wording.listed(own)} before that." if own else ""
    return sentence.format(allowing.allowing(blocked)) + first


def _may_act(blocked: Blocked) -> bool:
    """Return whether this may be a function that does something when the file is loaded.

    Functions have small letters; what it does only its code tells. Those that only build plain values are left out,
    and those that the file has as a value and never calls.
    """
    module, _, name = blocked.path.rpartition(".")
    if is_dangerous(module, name):
        return True
    return name.rpartition(".")[2].lstrip("_")[:1].islower() and not (blocked.refers or is_harmless(module, name))


def first_use(blocked: Sequence[Blocked]) -> Location:
    """Return where the first of the names is in the file, and its first object in the tree."""
    first = min(blocked, key=lambda each: each.first.offset)
    path = next((place.path for each in blocked for place in each.places), None)
    return Location(path=path, member=first.first.member or None, offset=first.first.offset)


@noun
class Objects:
    """Objects of one cause: the outermost places, and the refused names that appear there (or nowhere)."""

    places: tuple[BlockedPlace, ...]
    blocked: tuple[Blocked, ...]


def convertible(blocked: tuple[Blocked, ...]) -> tuple[Objects, list[object], Objects]:
    """Return the objects of these names in two groups: those that are plain data, with that data, and all others."""
    plain_places, values, other_places = [], [], []
    for place in outermost(blocked):
        try:
            values.append(as_plain(place.node))
            plain_places.append(place)
        except NotPlainError:
            other_places.append(place)
    return _objects(plain_places, blocked), values, _objects(other_places, blocked, left_over=True)


def _objects(places: list[BlockedPlace], blocked: tuple[Blocked, ...], left_over: bool = False) -> Objects:
    """Return these places with the names that appear in them; ``left_over`` adds the names that appear nowhere."""
    roots = {place.path for place in places}
    used = [
        each
        for each in blocked
        if any(place.path[:end] in roots for place in each.places for end in range(len(place.path) + 1))
        or (left_over and not each.places)
    ]
    return Objects(tuple(places), tuple(used))


def plain_fix(checkpoint: Checkpoint, objects: Objects, values: Sequence[object], title: str, code: str) -> Fix:
    """Return the fix: each of the objects becomes the plain data that it is."""
    wanted = dict(zip([place.path for place in objects.places], values, strict=True))
    edits = tuple([Replace(path, value) for path, value in gathered_values(checkpoint.tree, wanted).items()])
    return Fix(title, edits, Safety.SAFE, plain_option(checkpoint, code))


WEIGHTS_ONLY_SAFE = "--weights-only-safe"
KEEP = f"To keep what such objects hold, as plain data: ckptdoctor fix FILE {WEIGHTS_ONLY_SAFE}"
_NEVER_PLAIN = frozenset({BlockedCause.DANGEROUS, BlockedCause.MODULE, BlockedCause.DEVICE})


def plain_option(checkpoint: Checkpoint, code: str) -> str:
    """Return how to ask for plain data: for all of the file where all can be converted, else for what the rule found.

    A class of the user's own is left alone here: its attributes are plain data, but what the class does is lost.
    """
    _, _, own = convertible(blocked_by(checkpoint, BlockedCause.FOREIGN))
    return WEIGHTS_ONLY_SAFE if not own.blocked and has_plain_forms(checkpoint) else f"--select {code}"


@cached_by_identity
def has_plain_forms(checkpoint: Checkpoint) -> bool:
    """Return whether plain data can say all that torch refuses in the file: what --weights-only-safe asks for."""
    refused = [each for each in blocked_globals(checkpoint) if each.path not in NEEDS_IMPORT]
    if any(each.cause in _NEVER_PLAIN or not each.places for each in refused):
        return False
    return not plain_forms(checkpoint.tree, outermost(refused)).stuck


def conversion_edits(checkpoint: Checkpoint, wanted: PlainForms) -> list[Edit]:
    """Return what makes tensors and plain data of objects that torch refuses; only an archive can get new tensors."""
    made: list[Edit] = [MakeTensors(tuple([place.path for place in wanted.tensors]))] if wanted.tensors else []
    archive: list[Edit] = [Convert("torch zip")] if made and checkpoint.format == "torch legacy" else []
    values = {place.path: value for place, value in wanted.plain}
    return [
        *archive,
        *made,
        *[Replace(path, value) for path, value in gathered_values(checkpoint.tree, values).items()],
    ]


def drop_objects_fix(checkpoint: Checkpoint, objects: Sequence[BlockedPlace], code: str) -> Fix | None:
    """Return the fix that drops all of the objects, if each is under a key of a dict and no tensor is lost with it."""
    for place in objects:
        if not place.path or not isinstance(at(checkpoint.tree, place.path[:-1]), Mapping):
            return None
    if not objects or lost_without(checkpoint, [place.path for place in objects]):
        return None
    edits = (Drop(tuple([place.path for place in objects])),)
    return Fix(f"drop {listed_places(objects)}", edits, Safety.UNSAFE, f"--select {code}")


# Many small replacements as a few large ones: a list of a thousand NumPy numbers is replaced as one list

FEW = 16  # replacements that are left one by one
_PLAIN = (type(None), bool, int, float, str, bytes)


class _MixedError(Exception):
    """The container holds something besides plain values and replaced ones."""


def gathered_values(tree: Node, values: Table[KeyPath, object]) -> dict[KeyPath, object]:
    """Return the same change to ``tree`` as putting each of ``values`` at its path.

    Where there are many, a list, tuple or dict of nothing but plain and replaced values is replaced as a whole; then
    what contains it, as far up as that holds. The root itself is left.
    """
    left = dict(values)
    if len(left) <= FEW:
        return left
    containers = _containers(tree, left)
    for path in sorted(containers, key=len, reverse=True):  # the innermost first
        if path and any((*path, part) in left for part, _ in children(containers[path])):
            _gather(containers[path], path, left)
    return left


def _containers(tree: Node, values: Table[KeyPath, object]) -> dict[KeyPath, Node]:
    """Return everything on the way to one of the paths."""
    ways = {path[:end] for path in values for end in range(len(path))}
    found: dict[KeyPath, Node] = {}
    stack: list[tuple[KeyPath, Node]] = [((), tree)]
    while stack:
        path, node = stack.pop()
        found[path] = node
        stack.extend([(below, child) for part, child in children(node) if (below := (*path, part)) in ways])
    return found


def _gather(node: Node, path: KeyPath, left: dict[KeyPath, object]) -> None:
    try:
        whole = _whole(node, path, left)
    except _MixedError:
        return
    for part, _ in children(node):
        left.pop((*path, part), None)
    left[path] = whole


def _whole(node: Node, path: KeyPath, left: Table[KeyPath, object]) -> object:
    if isinstance(node, Items) and node.kind in ("list", "tuple"):
        items = [_value(child, (*path, index), left) for index, child in enumerate(node.items)]
        return items if node.kind == "list" else tuple(items)
    if isinstance(node, Mapping) and node.kind == "dict" and node.attributes is None and _has_plain_keys(node):
        return {part: _value(child, (*path, part), left) for part, child in node.entries}
    raise _MixedError


def _has_plain_keys(node: Mapping) -> bool:
    return all(isinstance(part, (str, int)) for part, _ in node.entries)


def _value(child: Node, path: KeyPath, left: Table[KeyPath, object]) -> object:
    if path in left:
        return left[path]
    if isinstance(child, _PLAIN):
        return child
    raise _MixedError
