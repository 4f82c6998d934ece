"""Turns a TorchScript archive into the nouns of a checkpoint: the tree is the module's state dict.

Tensors next to it are attributes of that dict: ``.attributes`` of the modules, and ``.constants`` of the code.
"""

from __future__ import annotations

import re

from ckptdoctor.checkpoint import (
    Aside,
    Checkpoint,
    Container,
    Cycle,
    GlobalName,
    Mapping,
    Node,
    Note,
    NoteKind,
    Opaque,
    Part,
    Source,
    Special,
    Tensor,
    walk,
)
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.errors import DamagedError, HostileError
from ckptdoctor.formats.other_pickles import behind, of_records, of_texts
from ckptdoctor.formats.torch.read import Contents, interpret
from ckptdoctor.formats.torch.zip.records import shown
from ckptdoctor.formats.window import Memory
from ckptdoctor.formats.zip_archives import Archive, RecordStorages, order_notes, required
from ckptdoctor.noun import field, noun, replace
from ckptdoctor.pickles import decode
from ckptdoctor.pickles.nested import texts_of
from ckptdoctor.wording import and_more

# what TorchScript's own pickler names: classes of the code, and functions that only mark types
_OWN = ("__torch__", "torch.jit._pickle")

_NAMED = 3


def read_script(source: Source, container: Container) -> Checkpoint:
    """Return the state dict of the module. Raises DamagedError when the archive cannot be read that far."""
    archive = required(source, container.head)
    folder = archive.folder("constants.pkl", "data.pkl") or ""
    asides: list[Aside] = []
    data, notes = _contents(source, archive, folder, "data", asides)
    constants, more = _contents(source, archive, folder, "constants", asides)
    read = frozenset({f"{folder}data.pkl", f"{folder}constants.pkl"})
    if not isinstance(data.tree, Opaque):
        raise DamagedError(f"{folder}data.pkl does not hold a module.", member=shown(f"{folder}data.pkl"))
    state = state_of(data.tree, Classes(source, archive, folder))
    tree = _tree(state, constants.tensors)
    return Checkpoint(
        path=source.path,
        format=container.format,
        size=source.size,
        tree=tree,
        tensors=(*state.tensors.values(), *state.others.values(), *_constants(constants.tensors)),
        storages=(*data.storages, *constants.storages),
        state_dicts=find_state_dicts(tree),
        globals=_foreign([*data.globals, *constants.globals]),
        notes=(*order_notes(source, archive, folder), *notes, *more, *_remarks(state)),
        identity=source.identity,
        bytes_read=source.bytes_read,
        container=container,
        asides=(*asides, *of_records(source, [each for each in archive.records if each.name not in read])),
    )


def _contents(
    source: Source, archive: Archive, folder: str, name: str, asides: list[Aside]
) -> tuple[Contents, list[Note]]:
    """Return what ``NAME.pkl`` holds, with its storages in the folder ``NAME``, and notes on the latter.

    ``asides`` takes in what the pickles in its texts and behind its end name.
    """
    member = f"{folder}{name}.pkl"
    raw = archive.read(source, member)
    try:
        pickle = decode(raw)
    except DamagedError as error:
        raise type(error)(f"{shown(member)}: {error.message}", offset=error.offset, member=shown(member)) from error
    asides += of_texts(texts_of(raw, pickle), shown(member))
    asides += behind(Memory(source.path, raw), pickle.end, shown(member))
    table = RecordStorages(source, archive, f"{folder}{name}/", "" if name == "data" else f"{name}/")
    contents = interpret(pickle, table, shown(member))
    odd = [Note(NoteKind.PICKLE_AMBIGUOUS, each.message, shown(member), each.offset) for each in pickle.ambiguities]
    return contents, [*odd, *contents.notes, *table.notes]


def _constants(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    return [replace(each, path=(Special(".constants"), index)) for index, each in enumerate(tensors)]


def _tree(state: State, constants: tuple[Tensor, ...]) -> Mapping:
    beside: list[tuple[Part, Node]] = []
    if state.others:
        others: list[tuple[Part, Node]] = [(name, each) for name, each in state.others.items()]
        beside.append(("attributes", Mapping("dict", tuple(others))))
    if constants:
        listed: list[tuple[Part, Node]] = [(index, each) for index, each in enumerate(_constants(constants))]
        beside.append(("constants", Mapping("dict", tuple(listed))))
    entries: list[tuple[Part, Node]] = [(key, each) for key, each in state.tensors.items()]
    return Mapping("collections.OrderedDict", tuple(entries), Mapping("dict", tuple(beside)) if beside else None)


def _foreign(uses: list[GlobalName]) -> tuple[GlobalName, ...]:
    return tuple([use for use in uses if not use.full.startswith(tuple(f"{own}." for own in _OWN))])


def _remarks(state: State) -> list[Note]:
    notes = []
    for names, what in (
        (state.plain, "not a tensor, and not part of the weights: not shown"),
        (state.packed, "packed by code of their own, which is not run: only the tensors inside are shown"),
    ):
        if names:
            notes.append(Note(NoteKind.NOT_EXAMINED, f"{and_more(names, _NAMED)}: {what}"))
    return notes


# ---- the state dict of a module in TorchScript: its tensors by name, as ``torch.jit.load(FILE).state_dict()`` has them


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
    """Return the state of a module and all inside it: of each the parameters, then the buffers, then the modules in it.

    Raises HostileError where modules are in each other without end.
    """
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
            raise HostileError("The modules contain each other, so their names never end.")
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
    """Keep the tensors in an attribute, each under the attribute's key and the way to it."""
    inside = [(path, each) for path, each in walk(value) if isinstance(each, Tensor)]
    if not inside and not isinstance(value, Cycle):
        found.plain.append(key)
    for path, tensor in inside:
        name = ".".join([key, *[_step(part) for part in path if not _is_call(part)]])
        found.others[name] = replace(tensor, path=(Special(".attributes"), name))


def _is_call(part: Part) -> bool:
    """Return whether a step leads to an argument of a call: TorchScript marks the types of lists by calls."""
    return isinstance(part, Special) and part.text.startswith("(")


def _step(part: Part) -> str:
    return part.text.lstrip(".") if isinstance(part, Special) else str(part)


def _without_copies(found: State) -> None:
    """Leave out attributes that are the tensors of the state dict once more, as the lists of recurrent modules are."""
    known = {each.view_id or id(each) for each in found.tensors.values()}
    found.others = {name: each for name, each in found.others.items() if (each.view_id or id(each)) not in known}


# ---- which attributes of a module are parameters and buffers: the code of its class says so, in lists of names
#
# The code is text that is searched for these lists, never run.
# Source: ``torch::jit::PythonPrintImpl::printModuleMetadata``.


_MOST_CODE = 16 << 20

_CLASS = re.compile(r"^class ([^\s(:]+)\(Module\):\n((?:  __[a-z_]+__ = \[[^\n]*\]\n)*)", re.MULTILINE)
_LIST = re.compile(r"^  __(parameters|buffers)__ = \[([^\n]*)\]$", re.MULTILINE)
# it also takes a name that nothing closes: to look for a quote in all of the rest again and again would be quadratic
_NAME = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)(?:"|\\?\Z)', re.DOTALL)


@noun
class Attributes:
    """The names of parameters and buffers; ``buffers`` is None where the code is too old to list them."""

    parameters: frozenset[str]
    buffers: frozenset[str] | None


class Classes:
    """The classes of one archive, each file of code read at most once."""

    def __init__(self, source: Source, archive: Archive, folder: str) -> None:
        self._source = source
        self._archive = archive
        self._folder = folder
        self._files: dict[str, dict[str, Attributes]] = {}

    def find(self, full_name: str) -> Attributes | None:
        """Return the attributes of ``__torch__.package.Class``, or None where it is not a module with code."""
        module, _, name = full_name.rpartition(".")
        path = f"{self._folder}code/{module.replace('.', '/')}.py"
        if path not in self._files:
            self._files[path] = self._read(path)
        return self._files[path].get(name)

    def _read(self, path: str) -> dict[str, Attributes]:
        try:
            code = self._archive.read(self._source, path, _MOST_CODE).decode("utf-8", "replace")
        except DamagedError:
            return {}
        return {name: _attributes(lists) for name, lists in _CLASS.findall(code)}


def _attributes(lists: str) -> Attributes:
    found = {kind: frozenset(_NAME.findall(names)) for kind, names in _LIST.findall(lists)}
    return Attributes(found.get("parameters", frozenset()), found.get("buffers"))
