"""Reads and writes the file of a map of names; a person confirms a draft in it by putting a name in place of a mark.

``{"format": "ckptdoctor map 1", "root": …, "names": {old: new}, "dropped": [old, …]}``: ``root`` is where the state
dict was ("" at the top), the names are those of tensors in it, and what was dropped is gone. In the place of a new name
there can be a list (one tensor under several names), ``null`` (it is left out), ``{"to": new, "transposed": true}``,
``{"to": new, "axes": [3, 2, 0, 1]}`` (the dimensions change places; with ``"view"`` of a tensor that is seen in that
shape, and ``"shape"`` of what comes of it), or the mark of a draft: ``{"to": new, "uncertain": why, "or": [new, …]}``.
A draft also says what it leads ``"towards"``.
"""

from __future__ import annotations

import json
import os
from typing import Union

from ckptdoctor.checkpoint.missing import offer
from ckptdoctor.checkpoint.process import complete
from ckptdoctor.errors import RefusedError, UnreadableError, UsageError, WriteError
from ckptdoctor.noun import replace
from ckptdoctor.repair.name_map import Form, Given, Mark, NameMap, add
from ckptdoctor.repair.request import FixRequest, command_line
from ckptdoctor.wording import first_few, plural

FORMAT = "ckptdoctor map 1"
_KIND = b'{"format": "ckptdoctor map'
_TO, _TRANSPOSED, _UNCERTAIN, _OR = "to", "transposed", "uncertain", "or"
_AXES, _VIEW, _SHAPE = "axes", "view", "shape"
_RIVALS = 3  # other names of a key that a refusal lists
_LISTED = 6  # marked pairs that a refusal lists

Value = Union[str, list[str], None, dict[str, object]]


def require_room(path: str, output: str | None, *, force: bool) -> None:
    """Raise WriteError where the map could not be written in the end.

    A file that is there is replaced only with ``force``, and only by another map: a person may have confirmed what is
    in it, and a slip of the hand must not cost a checkpoint. ``output`` is what is to be written before the map.
    """
    from ckptdoctor.writing.fresh import require  # whoever only plans writes nothing

    target = require(path, _KIND, force=force, what="map")
    if output is not None and target.path == os.path.realpath(output):
        raise WriteError(f"{path} is where the repaired file goes; give the map another path.")
    if not os.access(target.directory, os.W_OK):
        raise WriteError(f"{path} cannot be written: Permission denied. Nothing was repaired.")


def write(path: str, name_map: NameMap, *, force: bool) -> None:
    """Write the map, where ``require_room`` has found room; what is marked comes first. Raises WriteError."""
    from ckptdoctor.writing.fresh import write_fresh

    said: dict[str, object] = {"format": FORMAT}
    said |= {"towards": name_map.towards} if name_map.towards else {}
    marked = {old: _marked(mark) for old, mark in name_map.marks.items()}
    turned = set(name_map.turned)
    plain = {
        old: _value(Given((new, *name_map.ties.get(old, ())), old in turned, name_map.forms.get(old)))
        for old, new in name_map.names.items()
    }
    plain |= {old: _value(Given((old,), True)) for old in name_map.turned if old not in name_map.names}
    said |= {"root": name_map.root, "names": {**marked, **plain}, "dropped": list(name_map.dropped)}
    try:
        data = (json.dumps(said, indent=1, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError as error:
        raise WriteError(f"The map {path} could not be written: a name holds half a character.") from error
    try:
        write_fresh(data, path, _KIND, force=force, what="map")
    except WriteError as error:
        raise WriteError(f"{error.message.removesuffix(' Nothing has changed.')} Everything else was done.") from error


def read(path: str) -> NameMap:
    """Return the map in a file, with its marks.

    Raises UnreadableError, or UsageError for a file that is not a map.
    """
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise UnreadableError(f"The map {path} cannot be read: {error.strerror}.{offer(path)}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a name map: {error}.") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise UsageError(f"{path} is not a name map: --write-map writes one.")
    root, pairs, dropped = found.get("root", ""), found.get("names"), found.get("dropped", [])
    towards = found.get("towards", "")
    if not all(isinstance(each, str) for each in (root, towards)) or not isinstance(pairs, dict):
        raise UsageError(f"{path} is not a name map: it needs a root, names and the dropped keys.")
    if not isinstance(dropped, list):
        raise UsageError(f"{path} is not a name map: it needs a root, names and the dropped keys.")
    gone, turned = [str(each) for each in dropped], list[str]()
    made = NameMap(root, {}, towards=towards, file=path)
    for old, value in pairs.items():
        given = _given(path, old, value)
        if isinstance(value, dict) and _UNCERTAIN in value:
            rivals = value.get(_OR, [])
            listed = rivals if isinstance(rivals, list) else [rivals]
            made.marks[old] = Mark(given, str(value[_UNCERTAIN]), tuple([_given(path, old, each) for each in listed]))
        else:
            add(old, given, made, gone, turned)
    return replace(made, dropped=tuple(gone), turned=tuple(turned))


def _value(given: Given) -> Value:
    """Return a key's future as JSON."""
    to: Value = None if not given.to else given.to[0] if len(given.to) == 1 else list(given.to)
    if given.form is not None:
        said: dict[str, object] = {_TO: to, _AXES: list(given.form.axes)}
        for name, sizes in ((_VIEW, given.form.view), (_SHAPE, given.form.shape)):
            said |= {name: list(sizes)} if sizes else {}
        return said
    return {_TO: to, _TRANSPOSED: True} if given.transposed else to


def _marked(mark: Mark) -> Value:
    first = _value(mark.given)
    said: dict[str, object] = dict(first) if isinstance(first, dict) else {_TO: first}
    said[_UNCERTAIN] = mark.why
    if mark.rivals:
        said[_OR] = [_value(each) for each in mark.rivals]
    return said


def _given(path: str, old: str, value: object) -> Given:
    """Return what JSON says about a key. Raises UsageError for a value that is not a name."""
    transposed, form = False, None
    if isinstance(value, dict):
        transposed = value.get(_TRANSPOSED) is True
        form = _form(path, old, value)
        value = value.get(_TO)
    if value is None:
        return Given()
    said = value if isinstance(value, list) else [value]
    to = tuple([each for each in said if isinstance(each, str) and each])
    if not to or len(to) < len(said):
        raise UsageError(
            f"{path} is not a name map: the value of {old} must be a name, a list of names, null to leave it "
            'out, or {"to": NAME, "transposed": true}.'
        )
    return Given(to, transposed, form)


def _form(path: str, old: str, value: dict[str, object]) -> Form | None:
    """Return the order that values get. Raises UsageError for a value that is not a list of sizes."""
    found = []
    for name in (_AXES, _VIEW, _SHAPE):
        sizes = value.get(name, [])
        if not isinstance(sizes, list) or not all(type(each) is int and each >= 0 for each in sizes):
            raise UsageError(f"{path} is not a name map: {name} of {old} must be a list of numbers.")
        found.append(tuple(sizes))
    axes, view, shape = found
    if not axes and (view or shape):
        raise UsageError(f"{path} is not a name map: {old} needs axes, the order of its dimensions.")
    return Form(axes, view, shape) if axes else None


def require_confirmed(request: FixRequest) -> None:
    """Raise RefusedError for a draft map with marks, and for one whose target is not named: it is checked against that.

    The sentence says which pairs they are, how each is confirmed, and what to run then.
    """
    found = request.name_map
    if found is None or not (found.marks or (found.towards and request.reference is None)):
        return
    if not found.marks:
        raise RefusedError(
            f"{found.file} was drafted for a target, whose shapes and dtypes check it. Name the target:\n  "
            f"{_towards(request, found.towards)}"
        )
    lines = [
        f"{found.file} marks {plural(len(found.marks), 'pair')} that nobody has confirmed.",
        *first_few(
            [f"  {old}  →  {_shown(mark)}: {mark.why}" for old, mark in found.marks.items()], _LISTED, before="  and "
        ),
        '  replace each mark, the whole {"to": …, "uncertain": …}, with the right name (or null, to leave '
        "the tensor out); then:",
        f"    {_towards(request, found.towards)}",
    ]
    raise RefusedError("\n".join(lines))


def _towards(request: FixRequest, target: str) -> str:
    """Return the command line again, with the target of a map where none is named."""
    line = command_line(request)
    return line if request.reference is not None or not target else complete(f"{line} {target}")


def _shown(mark: Mark) -> str:
    others = [" and ".join(each.to) or "null" for each in mark.rivals[:_RIVALS]]
    name = " and ".join(mark.given.to) or "null"
    listed = f" (or {', '.join(others)})" if others else ""
    turned = " transposed" if mark.given.transposed else " in another order" if mark.given.form is not None else ""
    return f"{name}{turned}{listed}"
