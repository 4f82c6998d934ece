"""Keeps the renames of a repair as data: to use again on checkpoints of the same kind, confirmed before that.

``repair.map_file`` says how it is written down.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ckptdoctor.checkpoint import Checkpoint, show_path
from ckptdoctor.checkpoint.keypath import KeyPath
from ckptdoctor.checkpoint.roots import find_root
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.edits import Drop, Edit, Rename, Reshape, TakeRoot, Tie, Transpose
from ckptdoctor.edits.fix import Step
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts import names
from ckptdoctor.noun import field, noun, replace

_BELOW = "/"  # of a tensor in a part of its own that is dropped, the map has the path


@noun
class Form:
    """How the values of a tensor get another order: seen as ``view`` (() as it is), the dimensions change places as
    ``axes`` says, and what comes of that has ``shape`` (() as it is): ``view(…).permute(…).reshape(…)``.
    """

    axes: tuple[int, ...]
    view: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether a tensor of this shape can be seen so."""
        seen = self.view or shape
        same = prod(seen) == prod(shape) and prod(self.shape or seen) == prod(shape)
        return same and sorted(self.axes) == list(range(len(seen)))


@noun
class Given:
    """What becomes of a key: its new name, several for one tensor under each of them, () where it is left out."""

    to: tuple[str, ...] = ()
    transposed: bool = False
    form: Form | None = None


@noun
class Mark:
    """A pair that a person has to confirm: what is proposed, why it is not certain, and what else it may be."""

    given: Given
    why: str
    rivals: tuple[Given, ...] = ()


@noun
class NameMap:
    """Where the state dict was, what its keys became, and which of them went.

    ``ties`` are further names of tensors, ``turned`` the tensors that are transposed, and ``forms`` those whose values
    get another order, by their old keys. ``marks``
    are the pairs that wait for a person: as long as there is one, nothing is renamed. ``towards`` is the option that
    names the target of a draft, against which it is checked. ``file`` is where the map was read from.
    """

    root: str
    names: dict[str, str]
    dropped: tuple[str, ...] = ()
    ties: dict[str, tuple[str, ...]] = field(default_factory=dict)
    turned: tuple[str, ...] = ()
    marks: dict[str, Mark] = field(default_factory=dict)
    towards: str = ""
    file: str = ""
    forms: dict[str, Form] = field(default_factory=dict)

    def reversed(self) -> NameMap:
        """Return the way back, for files that have gone this way. What was dropped does not come back.

        Raises RefusedError for a map with marks, and for one that gives values another order.
        """
        if self.forms:
            some = next(iter(self.forms))
            raise RefusedError(f"{self.file} reorders the values of {some}: that cannot be reversed.")
        if self.marks:
            raise RefusedError(f"{self.file} has unconfirmed pairs: it cannot be reversed yet.")
        back = {new: old for old, new in self.names.items()}
        more = tuple([name for each in self.ties.values() for name in each])
        return NameMap("", back, more, turned=tuple([self.names.get(old, old) for old in self.turned]), file=self.file)


class UnfitError(RefusedError):
    """What is there does not fit its target, nor does anything that no guess makes of it.

    ``missing`` are the wanted keys that it lacks or has in shape mismatch, ``draft`` is the map of what is uncertain.
    """

    def __init__(self, message: str, missing: tuple[str, ...] = (), draft: NameMap | None = None) -> None:
        super().__init__(message)
        self.missing = missing
        self.draft = draft


def resolved(draft: NameMap) -> NameMap:
    """Return the map with every mark confirmed as it is proposed."""
    made = NameMap(draft.root, dict(draft.names), (), dict(draft.ties), towards=draft.towards, file=draft.file)
    made.forms.update(draft.forms)
    dropped, turned = list(draft.dropped), list(draft.turned)
    for old, mark in draft.marks.items():
        add(old, mark.given, made, dropped, turned)
    return replace(made, dropped=tuple(dropped), turned=tuple(turned))


def add(old: str, given: Given, made: NameMap, dropped: list[str], turned: list[str]) -> None:
    """Note what becomes of a key."""
    if not given.to:
        dropped.append(old)
        return
    made.names[old] = given.to[0]
    if len(given.to) > 1:
        made.ties[old] = given.to[1:]
    if given.transposed:
        turned.append(old)
    if given.form is not None:
        made.forms[old] = given.form


def of_steps(steps: tuple[Step, ...]) -> NameMap:
    """Return what the steps of a repair did to the keys of the one state dict that they left."""
    root: KeyPath = ()
    names: dict[str, str] = {}
    dropped: list[str] = []
    turned: list[str] = []
    forms: dict[str, Form] = {}
    for edit in [edit for step in steps for edit in step.edits]:
        before = {new: old for old, new in names.items()}
        if isinstance(edit, TakeRoot):
            root = (*root, *edit.path)
        elif isinstance(edit, Rename):
            names.update({before.get(old, old): new for old, new in edit.pairs})
        elif isinstance(edit, Drop):
            dropped += [before.get(str(path[-1]), str(path[-1])) for path in edit.paths]
        elif isinstance(edit, Transpose):
            old = before.get(str(edit.path[-1]), str(edit.path[-1]))
            turned += [old] if edit.dims == (1, 0) else []
            forms |= {} if edit.dims == (1, 0) else {old: Form(edit.dims)}
    gone = set(dropped)
    kept = {old: new for old, new in names.items() if old not in gone}
    return NameMap(show_path(root) if root else "", kept, tuple(dropped), turned=tuple(turned), forms=forms)


def root_edits(checkpoint: Checkpoint, name_map: NameMap) -> list[Edit]:
    """Take the state dict out of the rest, where the map was made from a nested one."""
    path = find_root(checkpoint.tree, name_map.root) if name_map.root else ()
    return [TakeRoot(path)] if path else []


def turn_edits(checkpoint: Checkpoint, name_map: NameMap) -> list[Edit]:
    """Transpose what the map says, and give values another order. Raises RefusedError for what has not that form."""
    found: list[Edit] = list(_form_edits(checkpoint, name_map.forms))
    wanted = set(name_map.turned)
    for state_dict in weights_among(checkpoint.state_dicts) if wanted else ():
        for tensor in state_dict.tensors:
            if tensor.key in wanted and len(tensor.shape) != 2:
                raise RefusedError(f"--map would transpose {tensor.key}, which is not a matrix: {list(tensor.shape)}.")
            found += [Transpose(tensor.path)] if tensor.key in wanted else []
    return found


def _form_edits(checkpoint: Checkpoint, forms: dict[str, Form]) -> Iterator[Edit]:
    """Yield one kind of edit after another: those of one kind are carried out together."""
    sets = weights_among(checkpoint.state_dicts) if forms else []
    held = [each for state_dict in sets for each in state_dict.tensors if each.key in forms]
    for tensor in held:
        if not forms[tensor.key].fits(tensor.shape):
            raise RefusedError(f"--map would give {tensor.key} {list(tensor.shape)} an impossible order.")
    pairs = [(tensor.path, forms[tensor.key]) for tensor in held]
    yield from (Reshape(path, form.view) for path, form in pairs if form.view)
    yield from (Transpose(path, form.axes) for path, form in pairs)
    yield from (Reshape(path, form.shape) for path, form in pairs if form.shape)


def name_edits(checkpoint: Checkpoint, name_map: NameMap) -> list[Edit]:
    """Drop and rename as the map says. Raises RefusedError where it is the map of other names, or ambiguous."""
    parts = {each for each in name_map.dropped if _BELOW in each}
    paths = [each.path for each in checkpoint.tensors if show_path(each.path) in parts] if parts else []
    found: list[Edit] = [Drop(tuple(paths))] if paths else []
    for state_dict in weights_among(checkpoint.state_dicts):
        keys = names.keys_of(state_dict)
        known = [key for key in keys if key in name_map.names or key in name_map.dropped]
        if 2 * len(known) < len(name_map.names):
            continue
        gone = set(name_map.dropped)
        dropped = [(*state_dict.path, key) for key in keys if key in gone]
        rest = [key for key in (*keys, *state_dict.others) if key not in gone]
        renaming = names.renaming(rest, lambda key: name_map.names.get(key, key))
        if renaming.collision is not None:
            one, other, name = renaming.collision
            raise RefusedError(f"--map would give two keys one name: {one} and {other} would both become {name}.")
        found += [Drop(tuple(dropped))] if dropped else []
        found += [Rename(state_dict.path, renaming.pairs)] if renaming.pairs else []
        here = set(keys)
        for old, more in name_map.ties.items():
            path = (*state_dict.path, name_map.names.get(old, old))
            found += [Tie(path, name) for name in more] if old in here else []
    if not found and not _known(checkpoint, name_map):
        raise RefusedError("--map names keys that this file does not have: it belongs to other checkpoints.")
    return found


def _known(checkpoint: Checkpoint, name_map: NameMap) -> bool:
    """Return whether the map speaks of keys that are here, though it changes none of them."""
    return any(key in name_map.names for state_dict in weights_among(checkpoint.state_dicts) for key in state_dict.keys)
