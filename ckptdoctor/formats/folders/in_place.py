"""Writes the names in a folder of shards again in its files: each shard as a file by itself, and the index.

A shard gets those of the edits that are about its own keys. Together they must give what is wanted of the whole: that
is compared once all files are written (``repair.in_place``).
"""

from __future__ import annotations

import json
import os
from typing import Any

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, FileIdentity, FolderSource, Mapping, NoteKind, Part
from ckptdoctor.edits import Edit, MoveToCpu, Rename, RenameModules, Retag
from ckptdoctor.edits.applied.apply_edits import apply
from ckptdoctor.edits.applied.wanted import Wanted, wanted_of
from ckptdoctor.formats.folders.new_index import sound_parts
from ckptdoctor.formats.folders.shards import Index
from ckptdoctor.formats.folders.weights import weights_in
from ckptdoctor.inplace.change import NotInPlaceError
from ckptdoctor.noun import noun, replace
from ckptdoctor.writing.recipe import Literal, Recipe

# an index that says something else than the shards has to be right before names in both are changed
_ODD_INDEX = frozenset({NoteKind.INDEX_WRONG, NoteKind.INDEX_STALE, NoteKind.INDEX_OMITS})


@noun
class FileEdit:
    """What becomes of one file of the folder, which was ``was``; ``wanted`` is None for the index."""

    name: str
    was: FileIdentity
    recipe: Recipe
    wanted: Wanted | None = None


def files_in(folder: FolderSource) -> tuple[str, ...]:
    """Return the files of weights and their index. Raises NotInPlaceError where one is not in this folder itself."""
    weights = weights_in(folder)
    assert weights is not None  # that is how the folder was recognised
    names = (*weights.files, *((weights.index.name,) if weights.index is not None else ()))
    elsewhere = next((name for name in names if os.path.basename(name) != name), None)
    if elsewhere is not None:
        raise NotInPlaceError(f"{elsewhere} is in another folder")
    return names


def write_in_place(wanted: Wanted, folder: FolderSource, block: int | None) -> tuple[FileEdit, ...]:
    """Return how to write each file that changes, with every tensor where it is: see ``formats.write_in_place``.

    Raises NotInPlaceError where more than names and device tags would change, and RefusedError where a shard is missing
    or the index is not that of the shards.
    """
    weights = weights_in(folder)
    assert weights is not None
    parts = sound_parts(folder, weights)
    odd = next((note.message for note in parts.gathering.notes if note.kind in _ODD_INDEX), None)
    if odd is not None:
        raise NotInPlaceError(f"its index is not that of the shards ({odd})")
    found: list[FileEdit] = []
    names: dict[Part, Part] = {}
    for name, shard in parts.read.items():
        edits = _edits_of(name, shard, wanted.edits)
        if not edits:
            continue
        own = wanted_of(shard, edits)
        source = folder.open(name)
        assert source.identity is not None
        found.append(FileEdit(name, source.identity, formats.write_in_place(own, source, block), own))
        names |= _renamed(shard, own.contents)
    if weights.index is not None and names:
        found.append(_of_index(folder, weights.index, names))
    return tuple(found)


def _edits_of(name: str, shard: Checkpoint, edits: tuple[Edit, ...]) -> list[Edit]:
    """Return the edits as far as they change something in this shard, said of it alone."""
    found: list[Edit] = []
    for edit in edits:
        own = _own(name, shard, edit)
        changed = shard if own is None else apply(shard, (own,))
        if own is not None and changed is not shard:
            found.append(own)
            shard = changed
    return found


def _own(name: str, shard: Checkpoint, edit: Edit) -> Edit | None:
    """Return the edit said of one shard; None where it is not about it."""
    if isinstance(edit, Rename) and not edit.state_dict:
        keys = _keys(shard.tree)
        pairs = tuple([pair for pair in edit.pairs if pair[0] in keys])
        return replace(edit, pairs=pairs) if pairs else None
    if isinstance(edit, RenameModules) and not edit.state_dict:
        own = shard.tree.attributes if isinstance(shard.tree, Mapping) else None
        modules = _keys(dict(own.entries).get("_metadata")) if own is not None else frozenset()
        pairs = tuple([pair for pair in edit.pairs if pair[0] in modules])
        return replace(edit, pairs=pairs) if pairs else None
    if isinstance(edit, Retag):
        label = f"{name}/"
        storages = edit.storages
        if storages is not None:
            storages = tuple([each.removeprefix(label) for each in storages if each.startswith(label)])
        return replace(edit, storages=storages) if storages != () else None
    if isinstance(edit, MoveToCpu):
        return edit
    raise NotInPlaceError("more than names and device tags would change")


def _keys(node: object) -> frozenset[Part]:
    return frozenset([part for part, _ in node.entries]) if isinstance(node, Mapping) else frozenset()


def _renamed(before: Checkpoint, after: Checkpoint) -> dict[Part, Part]:
    """Return what the keys of a shard are called afterwards."""
    assert isinstance(before.tree, Mapping)
    assert isinstance(after.tree, Mapping)
    pairs = zip(before.tree.entries, after.tree.entries, strict=True)
    return {old: new for (old, _), (new, _) in pairs if old != new}


def _of_index(folder: FolderSource, index: Index, names: dict[Part, Part]) -> FileEdit:
    """Return the index with the new names, everything else in the order and the style that it has."""
    source = folder.open(index.name)
    assert source.identity is not None
    data = source.read(0, source.size)
    try:
        said = json.loads(data)
        style, end = _style(said, data)
        said["weight_map"] = {names.get(key, key): file for key, file in said["weight_map"].items()}
        new = f"{json.dumps(said, **style)}{end}".encode("utf-8", "surrogatepass")
    except RecursionError as error:
        raise NotInPlaceError(f"{index.name} is nested too deep to be written again") from error
    return FileEdit(index.name, source.identity, Recipe(source.file, (Literal(new),)))


def _style(said: object, data: bytes) -> tuple[dict[str, Any], str]:
    """Return how a JSON text is written, where that is one of the usual ways; else how transformers writes it."""
    for indent in (2, 4, None):
        for ascii_only in (True, False):
            style: dict[str, Any] = {"indent": indent, "ensure_ascii": ascii_only}
            text = json.dumps(said, **style).encode("utf-8", "surrogatepass")
            for end in ("\n", ""):
                if text + end.encode() == data:
                    return style, end
    return {"indent": 2}, "\n"
