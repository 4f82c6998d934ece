"""Turns objects in a checkpoint into plain data, worked out from what the pickle says and never by making them.

Only objects whose whole content the pickle spells out are converted: a Namespace is its attributes, a path its parts,
a NumPy number the bytes of one element, a date its fields, a configuration of OmegaConf what its nodes hold (with
interpolations as the text that they are). Anything else raises NotPlainError; unless ``loosely`` is asked for, which
takes an object of any class for its attributes, or for the one plain value that it is made of, as an enum is, and an
array of NumPy for lists.
"""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.checkpoint import KeyPath, Mapping, Named, Node, Opaque, Sequence
from ckptdoctor.checkpoint.dtypes import NUMPY_BUFFERS, NUMPY_MAKERS
from ckptdoctor.facts.globals import WINDOWS_PATHS, BlockedPlace, is_dangerous, is_path, modern
from ckptdoctor.facts.numpy_values import NotPlainError as NotPlainError
from ckptdoctor.facts.numpy_values import array_of, as_bytes, held_values, listed, nested, number
from ckptdoctor.noun import noun

# objects that are nothing but their attributes
_RECORDS = frozenset({"argparse.Namespace", "types.SimpleNamespace"})
_DICTS = frozenset({"dict", "collections.OrderedDict", "collections.defaultdict", "collections.Counter"})
# dicts whose entries are attributes, too
_ATTRIBUTE_DICTS = frozenset({"easydict.EasyDict", "addict.addict.Dict", "addict.Dict", "munch.Munch"})
# objects of OmegaConf with the attribute that holds what they are
_OMEGACONF = {"omegaconf.dictconfig": "_content", "omegaconf.listconfig": "_content", "omegaconf.nodes": "_val"}
# random generators that are what their state is: setstate and set_state take it
_GENERATORS = frozenset({"random.Random", "numpy.random._pickle.__randomstate_ctor"})
_PLAIN = (bool, int, float, str, bytes)
_DEPTH = 100  # nesting that no configuration has


def as_plain(node: Node, depth: int = 0, loosely: bool = False) -> object:
    """Return the value as None, bool, int, float, complex, str and bytes, and lists, tuples and dicts of such.

    Raises NotPlainError for tensors, sets, cycles, odd dict keys, and objects that are not understood.
    """
    if node is None or isinstance(node, _PLAIN):
        return node
    if depth > _DEPTH:
        raise NotPlainError(f"it is nested more than {_DEPTH} levels deep")
    if isinstance(node, Mapping):
        return _dict(node, depth, loosely)
    if isinstance(node, Sequence) and node.kind in ("list", "tuple"):
        items = [as_plain(item, depth + 1, loosely) for item in node.items]
        return items if node.kind == "list" else tuple(items)
    if isinstance(node, Opaque):
        return _object(node, depth, loosely)
    raise NotPlainError(f"it holds {_what(node)}")


def _what(node: Node) -> str:
    if isinstance(node, Sequence):
        return f"a {node.kind}"
    return {"Tensor": "a tensor", "Named": "a class or function"}.get(type(node).__name__, "an unread value")


def _part(node: Opaque) -> str:
    """Return what ``getattr`` looks up: the member of an enum."""
    if len(node.arguments) != 2 or not isinstance(node.arguments[1], str):
        return "a part of something"
    owner = node.arguments[0]
    if isinstance(owner, Opaque) and owner.class_name == node.class_name:
        return f"{_part(owner)}.{node.arguments[1]}"
    inside = owner.name if isinstance(owner, Named) else "something"
    return f"{inside}.{node.arguments[1]}"


def _dict(node: Mapping, depth: int, loosely: bool) -> dict[str | int, object]:
    if node.kind in _ATTRIBUTE_DICTS:
        _require_no_more_than_entries(node)
    elif node.kind not in _DICTS:
        raise NotPlainError(f"it holds a {node.kind}")
    elif node.attributes is not None and node.attributes.entries:
        raise NotPlainError("it holds a dict with attributes of its own")
    plain: dict[str | int, object] = {}
    for part, child in node.entries:
        if not isinstance(part, (str, int)):
            raise NotPlainError("it holds a dict whose keys are neither strings nor integers")
        plain[part] = as_plain(child, depth + 1, loosely)
    return plain


def _require_no_more_than_entries(node: Mapping) -> None:
    """Require that the attributes are the entries once more, and settings of the class between underscores."""
    entries = dict(node.entries)
    for name, child in node.attributes.entries if node.attributes is not None else ():
        if not (str(name).startswith("__") and str(name).endswith("__")) and entries.get(name, _Absent) != child:
            raise NotPlainError(f"it holds a {node.kind} with attributes of its own")


class _Absent:
    """Stands for no entry."""


def _object(node: Opaque, depth: int, loosely: bool) -> object:
    module, _, name = node.class_name.rpartition(".")
    module, name = modern(module, name)
    if f"{module}.{name}" in _RECORDS:
        return _record(node, depth, loosely)
    if is_path(module, name):
        return _path(node, name)
    if module in ("numpy._core.multiarray", "numpy.core.multiarray") and name == "scalar":
        return number(node)
    if f"{module}.{name}" in NUMPY_MAKERS | NUMPY_BUFFERS:
        if not loosely:
            raise NotPlainError("it holds a NumPy array")
        return _array(node, depth)
    if f"{module}.{name}" == "builtins.complex" and all(isinstance(each, float) for each in node.arguments):
        return complex(*node.arguments)  # type: ignore[arg-type]  # they are floats
    if f"{module}.{name}" == "builtins.getattr":
        raise NotPlainError(f"it is {_part(node)}, of which the file has the name and not the value")
    if module == "datetime" and name in ("datetime", "date", "time"):
        return _date(node, name)
    if module in _OMEGACONF:
        return _configuration(node, _OMEGACONF[module], depth, loosely)
    if loosely and f"{module}.{name}" in _GENERATORS and not (node.items or node.entries) and node.state is not None:
        return as_plain(node.state, depth + 1, True)
    if _is_exception(module, name):
        raise NotPlainError(f"it holds an exception, {name}, of which plain data would keep the text alone")
    if loosely and not is_dangerous(module, name) and not module.startswith(("numpy", "torch")):
        return _bare(node, depth)
    if module.startswith("numpy") and name == "_reconstruct":
        raise NotPlainError("it is a NumPy array")
    raise NotPlainError(f"it holds an object of the class {module}.{name}")


def _is_exception(module: str, name: str) -> bool:
    """Return whether it is a class of exceptions: one of Python's, or one that is called as they are."""
    import builtins

    brought = getattr(builtins, name, None) if module == "builtins" else None
    return (isinstance(brought, type) and issubclass(brought, BaseException)) or name.endswith(("Error", "Exception"))


def _record(node: Opaque, depth: int, loosely: bool) -> object:
    if node.arguments or node.items or node.entries or not isinstance(node.state, (Mapping, type(None))):
        raise NotPlainError(f"its {node.class_name} was not written in the usual way")
    return {} if node.state is None else as_plain(node.state, depth + 1, loosely)


def _configuration(node: Opaque, attribute: str, depth: int, loosely: bool) -> object:
    state = dict(node.state.entries) if isinstance(node.state, Mapping) else {}
    if attribute not in state or node.arguments or node.items or node.entries:
        raise NotPlainError(f"its {node.class_name} was not written in the usual way")
    return as_plain(state[attribute], depth + 1, loosely)


def _bare(node: Opaque, depth: int) -> object:
    """Return an object of any class as its attributes, or as the one plain value that it is made of."""
    if not (node.items or node.entries):
        if node.state is None and len(node.arguments) == 1 and isinstance(node.arguments[0], _PLAIN):
            return node.arguments[0]
        if not node.arguments and isinstance(node.state, Mapping):
            return as_plain(node.state, depth + 1, True)
    raise NotPlainError(f"it holds an object of the class {node.class_name}")


def _path(node: Opaque, name: str) -> str:
    from pathlib import PurePosixPath, PureWindowsPath

    if node.state is not None or not all(isinstance(part, str) for part in node.arguments):
        raise NotPlainError("its path was not written in the usual way")
    kind = PureWindowsPath if name in WINDOWS_PATHS else PurePosixPath
    return str(kind(*[str(part) for part in node.arguments]))


def _array(node: Opaque, depth: int) -> object:
    """Return an array as lists in lists; one of objects with what these are."""
    array = array_of(node)
    if array is None:
        raise NotPlainError("it holds a NumPy array that was not written in the usual way")
    if isinstance(array.contents, Sequence):
        return nested(array, [as_plain(item, depth + 1, True) for item in array.contents.items])
    return listed(array)


def _date(node: Opaque, name: str) -> str:
    import datetime

    if len(node.arguments) != 1 or node.state is not None:  # a second argument is a time zone
        raise NotPlainError(f"it holds a {name} with a time zone")
    try:
        made: datetime.datetime | datetime.date | datetime.time = getattr(datetime, name)(as_bytes(node.arguments[0]))
    except (TypeError, ValueError) as error:
        raise NotPlainError(f"it holds an invalid {name}") from error
    return made.isoformat()


# ---- what objects of a checkpoint become: arrays tensors, and others the plain data that they are


@noun
class PlainForms:
    """Arrays that become tensors, what becomes plain data (and which), and what stays, with the reason."""

    tensors: tuple[BlockedPlace, ...]
    plain: tuple[tuple[BlockedPlace, object], ...]
    stuck: tuple[tuple[BlockedPlace, str], ...]


def plain_forms(tree: Node, places: Iterable[BlockedPlace]) -> PlainForms:
    """Return what these objects of the tree become."""
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
    """Return the paths to which only entries of dicts and lists lead: a tensor can be there."""
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
