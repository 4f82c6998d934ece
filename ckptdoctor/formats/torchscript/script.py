"""From a TorchScript archive to the nouns of a checkpoint: the tree is the module's state dict.

Tensors beside it are attributes of that dict: ``.attributes`` of the modules, and ``.constants`` of the code.
"""

from __future__ import annotations

from dataclasses import replace

from ckptdoctor.checkpoint import (
    Aside,
    Checkpoint,
    Container,
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
)
from ckptdoctor.checkpoint.state_dicts import find_state_dicts
from ckptdoctor.errors import DamagedError
from ckptdoctor.formats.archives import Archive, RecordStorages, insisted, order_notes
from ckptdoctor.formats.asides import behind, of_records, of_texts
from ckptdoctor.formats.torch_objects import Contents, interpret
from ckptdoctor.formats.torch_zip.record import shown
from ckptdoctor.formats.torchscript.classes import Classes
from ckptdoctor.formats.torchscript.module import State, state_of
from ckptdoctor.formats.window import Memory
from ckptdoctor.pickles import decode
from ckptdoctor.pickles.inner import texts_of
from ckptdoctor.wording import and_more

# what TorchScript's own pickler names: classes of the code, and functions that only mark types
_OWN = ("__torch__", "torch.jit._pickle")

_NAMED = 3


def read_script(source: Source, container: Container) -> Checkpoint:
    """The state dict of the module. Raises DamagedError when the archive cannot be read that far."""
    archive = insisted(source, container.head)
    folder = archive.folder("constants.pkl", "data.pkl") or ""
    asides: list[Aside] = []
    data, notes = _contents(source, archive, folder, "data", asides)
    constants, more = _contents(source, archive, folder, "constants", asides)
    read = frozenset({f"{folder}data.pkl", f"{folder}constants.pkl"})
    if not isinstance(data.tree, Opaque):
        raise DamagedError(f"{folder}data.pkl holds no module.", member=shown(f"{folder}data.pkl"))
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
    """What ``NAME.pkl`` holds, with its storages in the folder ``NAME``, and notes on the latter.

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
        (state.plain, "no tensor, and not part of the weights: not shown"),
        (state.packed, "packed by code of their own, which is not run: only the tensors inside are shown"),
    ):
        if names:
            notes.append(Note(NoteKind.NOT_EXAMINED, f"{and_more(names, _NAMED)}: {what}"))
    return notes
