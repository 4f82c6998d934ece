"""Each kind of edit. Edits apply one after another; each speaks of the contents as the ones before it left them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from ckptdoctor.checkpoint import KeyPath


@dataclass(frozen=True, slots=True)
class Rename:
    """Keys of the state dict at ``state_dict`` get new names: (old, new) pairs, one-to-one.

    The prefixes in its ``_metadata`` and equal names in any optimizer's ``param_names`` follow
    (``edits.renaming``). A new name that is already taken by a key that stays refuses the edit.
    """

    state_dict: KeyPath
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RenameModules:
    """Prefixes in the ``_metadata`` of the state dict at ``state_dict`` get new names; keys stay."""

    state_dict: KeyPath
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Retag:
    """Storages (by key; None: all) tagged with one of ``devices`` (None: any but ``to``) get the tag ``to``."""

    to: str
    devices: tuple[str, ...] | None = None
    storages: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class MoveToCpu:
    """Tensors that torch makes on one of ``devices`` (None: any) out of a CPU tensor or an array become CPU tensors.

    Devices without storages (XLA) are saved like that. A CPU tensor keeps its storage; an array's elements get one.
    Where the file does not show plainly what the values are, nothing changes.
    """

    devices: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """The values at these key paths go, with their storages where nothing else views them."""

    paths: tuple[KeyPath, ...]


@dataclass(frozen=True, slots=True)
class TakeRoot:
    """The value at ``path`` becomes the whole contents; everything else goes."""

    path: KeyPath


@dataclass(frozen=True, slots=True)
class Compact:
    """These storages shrink to the elements that tensors view; tensors that share elements go on sharing them."""

    storages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MakeContiguous:
    """The tensors at these paths get C-contiguous storages of their own, as ``Tensor.contiguous()`` gives."""

    paths: tuple[KeyPath, ...]


@dataclass(frozen=True, slots=True)
class Replace:
    """The value at ``path`` becomes plain: None, bool, int, float, str, bytes, or a list, tuple or dict of such."""

    path: KeyPath
    value: object


@dataclass(frozen=True, slots=True)
class Flatten:
    """The object at ``path`` becomes a state dict (an OrderedDict) of tensors inside it; everything else in it goes.

    ``tensors`` are (key, key path below the object) pairs. They come as ``Module.state_dict()`` gives them: what a
    Parameter holds, without requires_grad and attributes of its own. Views of one storage go on sharing it.
    """

    path: KeyPath
    tensors: tuple[tuple[str, KeyPath], ...]


@dataclass(frozen=True, slots=True)
class SetMetadata:
    """The safetensors ``__metadata__`` entry ``key`` becomes ``value``."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class SetSuffix:
    """The output file gets this suffix; no byte changes."""

    suffix: str


@dataclass(frozen=True, slots=True)
class Truncate:
    """The file ends after ``length`` bytes."""

    length: int


@dataclass(frozen=True, slots=True)
class Convert:
    """The contents move to another container: a format name such as "torch zip"."""

    format: str


Edit = Union[
    Rename,
    RenameModules,
    Retag,
    MoveToCpu,
    Drop,
    TakeRoot,
    Compact,
    MakeContiguous,
    Replace,
    Flatten,
    SetMetadata,
    SetSuffix,
    Truncate,
    Convert,
]
