"""Defines a checkpoint as its headers describe it: nothing in here was run, and no tensor value was read."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from ckptdoctor.checkpoint.keypath import ROOT, KeyPath
from ckptdoctor.checkpoint.notes import Note, NoteKind
from ckptdoctor.checkpoint.tensor import Storage, Tensor
from ckptdoctor.checkpoint.tree import Mapping, Node
from ckptdoctor.noun import field, noun
from ckptdoctor.wording import beyond


class Role(str, Enum):
    """What a state dict is for."""

    MODEL = "model"
    EMA = "ema"
    OPTIMIZER = "optimizer"
    SCHEDULER = "scheduler"
    RNG = "rng"


@noun
class StateDict:
    """A mapping of text keys to tensors at ``path``, with its role.

    ``tensors`` are its direct entries in file order (for an optimizer: every tensor below it).
    ``others`` are the keys whose values are not tensors. ``metadata`` is its ``_metadata``, where torch kept one.
    """

    path: KeyPath
    role: Role
    tensors: tuple[Tensor, ...]
    others: tuple[str, ...] = ()
    metadata: Mapping | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The tensor keys, in file order."""
        return tuple([tensor.key for tensor in self.tensors])


@noun
class LookUp:
    """A part of a class or module, by the names that lead to it, with dots. ``used``: it is called, or changed."""

    module: str
    name: str
    used: bool


@noun
class GlobalName:
    """A class or function that a pickle names, and where (byte offset in ``member``). Naming is not running.

    ``looks_up`` is all that ``getattr`` is called for, where that is nothing but parts of what the pickle names.
    ``refers`` says that it is only a value of the contents: the pickle calls nothing by it and does nothing to it.
    """

    module: str
    name: str
    member: str
    offset: int
    looks_up: tuple[LookUp, ...] = ()
    refers: bool = False

    @property
    def full(self) -> str:
        """``module.name``."""
        return f"{self.module}.{self.name}"

    @property
    def shown(self) -> str:
        """The full name as Python 3, and so the tree, has it."""
        return python3_name(self.module, self.name)


# Python 2's names of modules and built-ins, which pickle protocols up to 2 still write
_PYTHON2_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}
_PYTHON2_NAMES = {"xrange": "range", "unicode": "str", "long": "int", "unichr": "chr"}


def python3_name(module: str, name: str) -> str:
    """Return the full name as Python 3 has it."""
    if module in _PYTHON2_MODULES:
        return f"{_PYTHON2_MODULES[module]}.{_PYTHON2_NAMES.get(name, name)}"
    return f"{module}.{name}"


class Lying(str, Enum):
    """Where a pickle is that the contents were not read from, or not completely."""

    BESIDE = "beside"  # in a file or record of its own, which something else loads
    BEHIND = "behind"  # behind the end of another one
    INSIDE = "inside"  # in a text or bytes of another one
    INDEX = "index"  # in the list of what a folder holds, which is loaded without any protection
    BROKEN = "broken"  # it breaks off: what it names up to there


@noun
class Aside:
    """A pickle besides the one that the contents were read from, or one that breaks off, and what it names.

    It begins at ``offset`` of ``member`` ("": the file itself); one that is broken breaks off there.
    """

    lying: Lying
    names: tuple[GlobalName, ...]
    member: str
    offset: int


@noun
class FileIdentity:
    """What tells that a file is still the one that was read: device, inode, size and modification time (ns)."""

    device: int
    inode: int
    size: int
    mtime_ns: int


@noun
class Container:
    """A file before its contents are read: what it is by its bytes, and what is wrong with its outside.

    ``format`` is the name of a format ("torch zip"), or of a recognised other thing ("TorchScript archive"),
    or "" when nothing matched. ``readable`` says whether ckptdoctor can read the contents; if not,
    ``guidance`` says in one sentence what opens it, or what to do.
    """

    path: str
    size: int
    format: str
    head: bytes
    readable: bool
    guidance: str = ""
    notes: tuple[Note, ...] = ()
    identity: FileIdentity | None = None
    asides: tuple[Aside, ...] = ()


@noun
class Rival:
    """What ``file`` has under the key of ``path``, which is ``held`` in the checkpoint: it was taken from ``taken``."""

    path: KeyPath
    file: str
    node: Node
    taken: str
    held: Node


@noun
class Checkpoint:
    """What a checkpoint holds. ``metadata`` is a safetensors file's ``__metadata__`` (None: there is none).

    That of a folder is what its files say together; ``disputed`` are the entries that have several values there, and
    ``index_metadata`` is what the index says of the whole in addition to its table. ``rivals`` are further tensors with
    the name of one that is in it.
    ``asides`` are pickles besides those that it was read from: what they name is not among the ``globals``.
    """

    path: str
    format: str
    size: int
    tree: Node
    tensors: tuple[Tensor, ...]
    storages: tuple[Storage, ...]
    state_dicts: tuple[StateDict, ...]
    globals: tuple[GlobalName, ...] = ()
    metadata: dict[str, str] | None = None
    notes: tuple[Note, ...] = ()
    identity: FileIdentity | None = None
    bytes_read: int = 0
    container: Container | None = field(default=None, compare=False)
    asides: tuple[Aside, ...] = ()
    disputed: tuple[str, ...] = ()
    index_metadata: dict[str, object] = field(default_factory=dict)
    rivals: tuple[Rival, ...] = ()

    @property
    def big_endian(self) -> bool:
        """Whether the values in the file have the other byte order: torch swaps them when it loads them."""
        return any(note.kind is NoteKind.BIG_ENDIAN for note in self.notes)


# ---- what a checkpoint in several files lacks: files that are missing, damaged or outside of its folder, and tensors


UNREAD = frozenset({NoteKind.FILE_MISSING, NoteKind.FILE_DAMAGED, NoteKind.FILE_OUTSIDE})
# what lists every tensor with its shape in a file of its own, so that without the others only values are missing
_LISTING = "torch distributed checkpoint"
_TOLD = 3  # files that are told one by one before the rest is counted


def unread_files(checkpoint: Checkpoint, root: KeyPath = ROOT) -> tuple[Note, ...]:
    """Return what was noted of files that were not read: of all that may hold something below ``root``.

    That is known where an index names their tensors, or where one branch of the tree is one file; any other may hold
    everything.
    """
    return tuple([note for note in checkpoint.notes if note.kind in UNREAD and concerns(note, root)])


def unheld(checkpoint: Checkpoint) -> tuple[Note, ...]:
    """Return what was noted of tensors that an index names and none of the files has, although each was read."""
    return tuple([note for note in checkpoint.notes if note.kind is NoteKind.INDEX_LACKS])


def doubled_keys(checkpoint: Checkpoint) -> tuple[Note, ...]:
    """Return what was noted of keys that several files have: one of their values is in the checkpoint."""
    return tuple([note for note in checkpoint.notes if note.kind is NoteKind.KEY_IN_TWO_FILES])


def lists_all(checkpoint: Checkpoint) -> bool:
    """Return whether every tensor is known by name, shape and dtype, whichever files were not read."""
    return checkpoint.format == _LISTING


def concerns(note: Note, root: KeyPath) -> bool:
    """Return whether what was noted may be of the part of the tree at ``root``."""
    common = min(len(note.branch), len(root))
    if note.branch[:common] != root[:common]:
        return False
    return not note.keys or any(key[: len(root)] == root for key in note.keys)


def told_of(checkpoint: Checkpoint, notes: Sequence[Note]) -> str:
    """Return what is wrong with these files of it, without its path or a full stop.

    The first of them are told in their own words.
    """
    own = f"{checkpoint.path}: "
    said = "; ".join([note.message.removeprefix(own).rstrip(".") for note in notes[:_TOLD]])
    return said + beyond(len(notes) - _TOLD, "file", before="; and ")
