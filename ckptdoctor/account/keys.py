"""Follows edits of keys, order, plain values and the file around them: all that leaves bytes as they are."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Iterator

from ckptdoctor.account.contents import Account
from ckptdoctor.account.places import Box, Place, UnaccountedError, box_at, boxes, held, place_at
from ckptdoctor.checkpoint import KeyPath, Mapping, Node, Opaque, Part, Sequence, Special, Tensor
from ckptdoctor.checkpoint.metadata import MODEL
from ckptdoctor.edits import (
    Convert,
    Drop,
    Flatten,
    Rename,
    RenameModules,
    Renumber,
    Reorder,
    Repickle,
    Replace,
    SetMetadata,
    SetSuffix,
    TakeRoot,
    TextMetadata,
    Truncate,
    WriteIndex,
)
from ckptdoctor.edits.renaming import renamed_modules, renamed_ties
from ckptdoctor.facts import devices
from ckptdoctor.facts.devices import FROM_CPU, UTILS
from ckptdoctor.facts.numpy_values import BYTES, array_values, of_python_2
from ckptdoctor.facts.reader_notes import metadata_notes
from ckptdoctor.noun import replace

_METADATA = "_metadata"
_AS_SAVED = frozenset(
    {*[f"{UTILS}{name}" for name in ("tensor_v2", "tensor_v3", "qtensor", "sparse_tensor", "meta_tensor_no_storage")]}
) | {FROM_CPU}
_HASHED = (1 << 61) - 1  # readers spell out integer keys beyond it


def rename(account: Account, edit: Rename) -> None:
    """Rename keys of a dict, and what repeats them."""
    names, box = dict(edit.pairs), box_at(account.root, edit.state_dict)
    keys = [each.step for each in box.entries if isinstance(each.step, str)]
    by_name = [each for each in account.optimizers if _calls_by_name(each, set(keys))]
    _rename_keys(box, names)
    follow = None if box.attributes is None else box.attributes.place(_METADATA)
    if follow is not None and isinstance(follow.holds, Box):
        inside = follow.holds
        prefixes = [each.step for each in inside.entries if isinstance(each.step, str)]
        moves = renamed_modules(prefixes, {key: names.get(key, key) for key in keys})
        gone = {prefix for prefix, new in moves.items() if new is None}
        inside.entries = [each for each in inside.entries if each.step not in gone]
        _rename_keys(inside, {prefix: new for prefix, new in moves.items() if new is not None})
    if account.metadata and edit.state_dict == _place_of_metadata(account):
        account.metadata = renamed_ties(account.metadata, {key: names.get(key, key) for key in keys})
    for optimizer in account.optimizers:
        _rename_in(optimizer, "param_names", names)
        if optimizer in by_name:
            _rename_in(optimizer, "params", names)
            state = optimizer.place("state")
            if state is not None and isinstance(state.holds, Box):
                _rename_keys(state.holds, names)


def _place_of_metadata(account: Account) -> KeyPath:
    """Return where the tensors are that metadata is about: at the root, or below ``model`` in a run's folder."""
    root = account.root.holds
    if isinstance(root, Box) and not any(isinstance(each.holds, Tensor) for each in root.entries):
        model = root.place(MODEL[0])
        return MODEL if model is not None and isinstance(model.holds, Box) else ()
    return ()


def rename_modules(account: Account, edit: RenameModules) -> None:
    """Rename prefixes in the ``_metadata`` of a state dict."""
    names, attributes = dict(edit.pairs), box_at(account.root, edit.state_dict).attributes
    place = None if attributes is None else attributes.place(_METADATA)
    if place is None or not isinstance(place.holds, Box):
        raise UnaccountedError("an edit renames prefixes of _metadata that is not there")
    _rename_keys(place.holds, names)


def renumber(account: Account, edit: Renumber) -> None:
    """Give a dict other integer keys."""
    numbers = dict(edit.pairs)
    _restep(box_at(account.root, edit.path), lambda step: numbers.get(step, step) if isinstance(step, int) else step)


def reorder(account: Account, edit: Reorder) -> None:
    """Put the entries of a dict in another order."""
    box, order = box_at(account.root, edit.path), {key: number for number, key in enumerate(edit.keys)}
    for place in box.entries:
        place.rank = (order[place.step],)
    box.sort()


def drop(account: Account, edit: Drop) -> None:
    """Take out what goes, all of it told by the paths of before."""
    around: dict[KeyPath, set[int]] = {}
    for path in edit.paths:
        around.setdefault(path[:-1], set()).add(id(place_at(account.root, path)))
    kept = [(box_at(account.root, path), gone) for path, gone in around.items()]
    for box, gone in kept:
        box.without(gone)


def take_root(account: Account, edit: TakeRoot) -> None:
    """Make one part the whole."""
    place = _place_of_metadata(account)
    if any(one != other for one, other in zip(place, edit.path, strict=False)):
        account.metadata = None
    account.root = Place("", place_at(account.root, edit.path).holds)


def replaced(account: Account, edit: Replace) -> None:
    """Put a plain value in the place of anything."""
    place_at(account.root, edit.path).holds = held(_plain(edit.value))


def flatten(account: Account, edit: Flatten) -> None:
    """Turn an object into a state dict of tensors in it."""
    place = place_at(account.root, edit.path)
    made = Box(Mapping("collections.OrderedDict", ()))
    entries = []
    for number, (key, way) in enumerate(edit.tensors):
        tensor = place_at(place, way).holds
        if not isinstance(tensor, Tensor):
            raise UnaccountedError(f"an edit takes {key} for a tensor, which would be lost")
        rebuild = tensor.rebuild
        if rebuild not in _AS_SAVED:
            rebuild = FROM_CPU if tensor.moved else devices.on_cpu(tensor)
        detached = replace(tensor, requires_grad=False, is_parameter=False, rebuild=rebuild)
        entries.append(Place(key, detached, (number,)))
    made.entries = entries
    place.holds = made
    account.only_viewed |= not edit.path


def repickle(account: Account, edit: Repickle) -> None:
    """Have strings of Python 2 and old tensors as today's pickles have them."""
    old = of_python_2(account.source)
    encoding = edit.encoding if old else None
    for box in list(boxes(account.root)):
        noun = box.noun()
        values = array_values(noun) if isinstance(noun, Opaque) else None
        for place in box.places():
            if isinstance(place.holds, Tensor):
                place.holds = _of_today(place.holds)
            elif isinstance(place.holds, bytes):
                place.holds = _text(place.holds, encoding)
            if not old and (isinstance(place.holds, bytes) or _is_bytes(place.step)):
                account.names.add("_codecs.encode")
        if values is not None:
            account.names.add("_codecs.encode")
            state = box.state.holds
            last = state.items[-1] if isinstance(state, Box) and state.items else box.arguments[-1]
            last.holds = values
        if encoding is not None:
            _restep(box, lambda step: _text_step(step, encoding))
    if isinstance(account.root.holds, Tensor):
        account.root.holds = _of_today(account.root.holds)


def set_metadata(account: Account, edit: SetMetadata) -> None:
    """Set one entry."""
    account.metadata = {**(account.metadata or {}), edit.key: edit.value}


def text_metadata(account: Account, edit: TextMetadata) -> None:
    """Turn entries into text; the notes about them go."""
    texts = {key: text for key, text in edit.entries if text is not None}
    account.metadata = {**(account.metadata or {}), **texts}
    gone = metadata_notes(account.source.notes)
    account.notes = tuple([note for note in account.notes if note not in gone])


def truncate(account: Account, edit: Truncate) -> None:
    """Move the end of the file."""
    account.size = edit.length


def convert(account: Account, edit: Convert) -> None:
    """Name another container."""
    account.format = edit.format


def write_index(account: Account, edit: WriteIndex) -> None:
    """Drop the notes about an index."""
    account.notes = tuple([note for note in account.notes if note.member != edit.name])


def set_suffix(account: Account, edit: SetSuffix) -> None:
    """Change nothing in the file."""


def _restep(box: Box, change: Callable[[Part], Part]) -> None:
    for place in box.entries:
        place.step = change(place.step)
    box.entries = box.entries  # what was found by the old steps is forgotten


def _rename_keys(box: Box, names: dict[str, str]) -> None:
    _restep(box, lambda step: names.get(step, step) if isinstance(step, str) else step)


def _calls_by_name(optimizer: Box, keys: set[Part]) -> bool:
    """Return whether an optimizer calls its parameters by these keys, and by nothing else."""
    state = optimizer.place("state")
    called: list[object] = [each.step for each in state.holds.entries] if state and isinstance(state.holds, Box) else []
    for listed in _lists(optimizer, "params"):
        called += [each.holds for each in listed.items]
    return bool(called) and all(isinstance(each, str) and each in keys for each in called)


def _lists(optimizer: Box, name: str) -> Iterator[Box]:
    groups = optimizer.place("param_groups")
    for group in groups.holds.items if groups is not None and isinstance(groups.holds, Box) else ():
        listed = group.holds.place(name) if isinstance(group.holds, Box) else None
        if listed is not None and isinstance(listed.holds, Box):
            yield listed.holds


def _rename_in(optimizer: Box, name: str, names: dict[str, str]) -> None:
    for listed in _lists(optimizer, name):
        for place in listed.items:
            if isinstance(place.holds, str):
                place.holds = names.get(place.holds, place.holds)


def _plain(value: object) -> Node:
    """Return a plain value as a reader would show it."""
    if isinstance(value, (list, tuple)):
        return Sequence("list" if isinstance(value, list) else "tuple", tuple([_plain(each) for each in value]))
    if isinstance(value, dict):
        entries = []
        for key, each in value.items():
            plain = isinstance(key, str) or (type(key) is int and abs(key) < _HASHED)
            entries.append((key if plain else Special(repr(key)), _plain(each)))
        return Mapping("dict", tuple(entries))
    if isinstance(value, complex):
        return Opaque("builtins.complex", (value.real, value.imag))
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    raise UnaccountedError(f"an edit puts a {type(value).__name__} in, which is not plain data")


def _of_today(tensor: Tensor) -> Tensor:
    parts = tuple([_of_today(part) for part in tensor.parts])
    rebuild = f"{UTILS}tensor_v2" if tensor.rebuild == f"{UTILS}tensor" else tensor.rebuild
    return replace(tensor, rebuild=rebuild, parts=parts) if parts or rebuild != tensor.rebuild else tensor


def _text(value: bytes, encoding: str | None) -> bytes | str:
    if encoding is None:
        return value
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode(encoding)
    return value


def _is_bytes(step: Part) -> bool:
    return isinstance(step, Special) and step.text.startswith(BYTES)


def _text_step(step: Part, encoding: str) -> Part:
    if not isinstance(step, Special) or not _is_bytes(step):
        return step
    try:
        value = literal_eval(step.text)
    except (ValueError, SyntaxError):
        return step
    text = _text(value, encoding) if isinstance(value, bytes) else step
    return text if isinstance(text, str) else step
