"""The renames of a repair as a file: to use again on checkpoints of the same kind, forwards or backwards.

``{"format": "ckptdoctor map 1", "root": …, "names": {old: new}, "dropped": [old, …]}``: ``root`` is where the state
dict was ("" at the top), the names are those of tensors in it, and what was dropped is gone.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from ckptdoctor.checkpoint import Checkpoint, show_path
from ckptdoctor.checkpoint.keypath import KeyPath
from ckptdoctor.edits import Drop, Edit, Rename, TakeRoot
from ckptdoctor.edits.steps import Step
from ckptdoctor.engine.roots import find_root
from ckptdoctor.engine.weights import weights
from ckptdoctor.errors import RefusedError, UnreadableError, UsageError, WriteError
from ckptdoctor.facts import names

FORMAT = "ckptdoctor map 1"


@dataclass(frozen=True, slots=True)
class NameMap:
    """Where the state dict was, what its keys became, and which of them went."""

    root: str
    names: dict[str, str]
    dropped: tuple[str, ...] = ()

    def reversed(self) -> NameMap:
        """The way back, for files that have gone this way. What was dropped does not come back."""
        return NameMap("", {new: old for old, new in self.names.items()})


def of_steps(original: Checkpoint, steps: tuple[Step, ...]) -> NameMap:
    """What the steps of a repair did to the keys of the one state dict that they left."""
    root: KeyPath = ()
    names: dict[str, str] = {}
    dropped: list[str] = []
    for edit in [edit for step in steps for edit in step.edits]:
        if isinstance(edit, TakeRoot):
            root = (*root, *edit.path)
        elif isinstance(edit, Rename):
            before = {new: old for old, new in names.items()}
            names.update({before.get(old, old): new for old, new in edit.pairs})
        elif isinstance(edit, Drop):
            before = {new: old for old, new in names.items()}
            dropped += [before.get(str(path[-1]), str(path[-1])) for path in edit.paths]
    gone = set(dropped)
    return NameMap(show_path(root) if root else "", {k: v for k, v in names.items() if k not in gone}, tuple(dropped))


def require_room(path: str) -> None:
    """Raises WriteError where the map could not be written in the end."""
    folder = os.path.dirname(path) or "."
    why = "No such file or directory" if not os.path.isdir(folder) else "Is a directory" if os.path.isdir(path) else ""
    if not why and not os.access(path if os.path.exists(path) else folder, os.W_OK):
        why = "Permission denied"
    if why:
        raise WriteError(f"The map {path} could not be written: {why}. Nothing was repaired.")


def write(path: str, name_map: NameMap) -> None:
    """Write the map. Raises WriteError."""
    text = json.dumps(
        {"format": FORMAT, "root": name_map.root, "names": name_map.names, "dropped": list(name_map.dropped)}, indent=1
    )
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise WriteError(f"The map {path} could not be written: {error.strerror}. All else was done.") from error


def read(path: str) -> NameMap:
    """The map in a file. Raises UnreadableError, or UsageError for a file that is none."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableError(f"The map {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UsageError(f"{path} is no map of names: {error}.") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise UsageError(f"{path} is no map of names: --write-map writes one.")
    root, pairs, dropped = found.get("root", ""), found.get("names"), found.get("dropped", [])
    if not isinstance(root, str) or not isinstance(pairs, dict) or not isinstance(dropped, list):
        raise UsageError(f"{path} is no map of names: it wants a root, names and what was dropped.")
    return NameMap(root, {str(old): str(new) for old, new in pairs.items()}, tuple(map(str, dropped)))


def root_edits(checkpoint: Checkpoint, name_map: NameMap) -> list[Edit]:
    """Take the state dict out of the rest, where the map was made from a nested one."""
    path = find_root(checkpoint.tree, name_map.root) if name_map.root else ()
    return [TakeRoot(path)] if path else []


def name_edits(checkpoint: Checkpoint, name_map: NameMap) -> list[Edit]:
    """Drop and rename as the map says. Raises RefusedError where it is the map of other names, or ambiguous."""
    found: list[Edit] = []
    for state_dict in weights(checkpoint):
        keys = names.keys_of(state_dict)
        known = [key for key in keys if key in name_map.names or key in name_map.dropped]
        if 2 * len(known) < len(name_map.names):
            continue
        dropped = [(*state_dict.path, key) for key in keys if key in name_map.dropped]
        rest = [key for key in (*keys, *state_dict.others) if key not in name_map.dropped]
        renaming = names.renaming(rest, lambda key: name_map.names.get(key, key))
        if renaming.collision is not None:
            one, other, name = renaming.collision
            raise RefusedError(f"--map would give two keys one name: {one} and {other} would both become {name}.")
        found += [Drop(tuple(dropped))] if dropped else []
        found += [Rename(state_dict.path, renaming.pairs)] if renaming.pairs else []
    if not found:
        raise RefusedError("--map names keys that this file does not have: it belongs to other checkpoints.")
    return found
