"""Defines each kind of edit. Edits apply one after another; each speaks of what the ones before it left."""

from __future__ import annotations

from typing import Union

from ckptdoctor.checkpoint import KeyPath, Part
from ckptdoctor.edits.elements import View
from ckptdoctor.noun import noun


@noun
class Rename:
    """Keys of the state dict at ``state_dict`` get new names: (old, new) pairs, one-to-one.

    The prefixes in its ``_metadata`` and equal names in any optimizer's ``param_names`` follow, and the state of an
    optimizer that calls its parameters by these keys, as FSDP's do (``edits.renaming``). A new name that is already
    taken by a key that stays refuses the edit.
    """

    state_dict: KeyPath
    pairs: tuple[tuple[str, str], ...]


@noun
class RenameModules:
    """Prefixes in the ``_metadata`` of the state dict at ``state_dict`` get new names; keys stay."""

    state_dict: KeyPath
    pairs: tuple[tuple[str, str], ...]


@noun
class Renumber:
    """Keys of the dict at ``path`` that are integers get other numbers: (old, new) pairs, one-to-one.

    The state of an optimizer is kept like this: by the numbers of its parameters.
    """

    path: KeyPath
    pairs: tuple[tuple[int, int], ...]


@noun
class Reorder:
    """The entries of the dict at ``path`` come in this order: ``keys`` are all of its keys."""

    path: KeyPath
    keys: tuple[Part, ...]


@noun
class Retag:
    """Storages (by key; None: all) tagged with one of ``devices`` (None: any but ``to``) get the tag ``to``."""

    to: str
    devices: tuple[str, ...] | None = None
    storages: tuple[str, ...] | None = None


@noun
class MoveToCpu:
    """Tensors that torch makes on one of ``devices`` (None: any) out of a CPU tensor or an array become CPU tensors.

    Devices without storages (XLA) are saved like that. A CPU tensor keeps its storage; an array's elements get one.
    Where the file does not show plainly what the values are, nothing changes.
    """

    devices: tuple[str, ...] | None = None


@noun
class Drop:
    """The values at these key paths go, with their storages where nothing else views them."""

    paths: tuple[KeyPath, ...]


@noun
class TakeRoot:
    """The value at ``path`` becomes the whole contents; everything else goes."""

    path: KeyPath


@noun
class Compact:
    """These storages shrink to the elements that tensors view; tensors that share elements go on sharing them."""

    storages: tuple[str, ...]


@noun
class MakeContiguous:
    """The tensors at these paths get C-contiguous storages of their own, as ``Tensor.contiguous()`` gives."""

    paths: tuple[KeyPath, ...]


@noun
class Clone:
    """The tensors at these paths get C-contiguous storages of their own, which they share with no other tensor.

    ``MakeContiguous`` is the same except for equal views of one storage, which go on sharing theirs.
    """

    paths: tuple[KeyPath, ...]


@noun
class Densify:
    """The sparse tensors at these paths become dense ones with the same values, as ``Tensor.to_dense()`` gives.

    One that has an index several times is refused: its values would have to be added.
    """

    paths: tuple[KeyPath, ...]


@noun
class Replace:
    """The value at ``path`` becomes plain: None, bool, int, float, str, bytes, or a list, tuple or dict of such."""

    path: KeyPath
    value: object


@noun
class MakeTensors:
    """The NumPy arrays at these paths become CPU tensors with the same elements, each with a storage of its own."""

    paths: tuple[KeyPath, ...]


@noun
class Repickle:
    """The pickle is written again as ``torch.save`` writes it today: protocol 2, what it says being the same.

    Strings of Python 2 become text, the values of NumPy arrays and numbers among them bytes; tensors of torch 0.3 are
    made by today's function. ``encoding`` ("latin1") is that of the strings that are not UTF-8; None: these stay.
    """

    encoding: Union[str, None] = None


@noun
class Flatten:
    """The object at ``path`` becomes a state dict (an OrderedDict) of tensors inside it; everything else in it goes.

    ``tensors`` are (key, key path below the object) pairs. They come as ``Module.state_dict()`` gives them: what a
    Parameter holds, without requires_grad and attributes of its own. Views of one storage go on sharing it.
    """

    path: KeyPath
    tensors: tuple[tuple[str, KeyPath], ...]


@noun
class Reshape:
    """The tensor at ``path`` gets another shape for the same elements, as ``Tensor.reshape`` gives."""

    path: KeyPath
    shape: tuple[int, ...]


@noun
class Transpose:
    """The dimensions of the tensor at ``path`` change places: the elements of ``Tensor.permute(dims).contiguous()``."""

    path: KeyPath
    dims: tuple[int, ...] = (1, 0)


@noun
class Fill:
    """A new tensor at ``path``, an entry of a state dict, with the same number everywhere, behind its siblings.

    ``dtype`` is torch's name without ``torch.``. The value must be one that the dtype holds exactly.
    """

    path: KeyPath
    dtype: str
    shape: tuple[int, ...]
    value: Union[bool, int, float]
    device: str = "cpu"


@noun
class Split:
    """The tensor at ``path`` becomes several: ``parts`` are (key, start, stop) of its indices along ``dim``.

    The parts of one key, in their order, make up one tensor: a key has several where heads are interleaved. All parts
    together are the whole tensor, each index once. The new keys are where the old one was.
    """

    path: KeyPath
    parts: tuple[tuple[str, int, int], ...]
    dim: int = 0


@noun
class Fuse:
    """The tensors at ``paths``, entries of one state dict, become one along ``dim``, where the first of them was.

    ``order`` says in which order their indices follow: (number of the path, start, stop), together each index of each
    once. () is one whole tensor after another, as ``torch.cat`` gives.
    """

    paths: tuple[KeyPath, ...]
    key: str
    dim: int = 0
    order: tuple[tuple[int, int, int], ...] = ()


@noun
class FuseNorm:
    """What a norm of weights is computed from becomes the plain weight ``key``, where the first of the tensors was.

    ``paths`` are (v, g) of a "weight" norm: the weight is ``v * g / ‖v‖``, the norm being that of each index along
    ``dim``, or of all of v where it is None; or (original, u, v) of a "spectral" norm: ``original / (uᵀ·W·v)``, W being
    the original as a matrix with an index along ``dim`` in each row (None: the values of u and v tell which). Values
    are computed in float64 and rounded once.
    """

    paths: tuple[KeyPath, ...]
    key: str
    norm: str
    dim: Union[int, None] = 0


@noun
class Tie:
    """The tensor at ``path``, an entry of a state dict, gets a second name there, ``key``, right behind it.

    In torch's files both are views of one storage, as tied weights are saved; safetensors holds the values twice.
    """

    path: KeyPath
    key: str


@noun
class Dequantize:
    """What a quantised layer keeps becomes the plain weight ``key`` of ``dtype`` in the state dict at ``place``.

    ``paths`` are the tensors that it takes, entries of the state dict or inside one; those entries go. What they are
    depends on the ``scheme``, which ``edits.quantization`` tells; ``block`` are the rows and columns that share a
    scale (0: all of them), ``affine`` are scale and zero point of a tensor that has one of each, ``shape`` is that of
    the plain weight where its numbers are packed. Values are computed in float64 and rounded once.
    """

    paths: tuple[KeyPath, ...]
    key: str
    scheme: str
    dtype: str
    place: KeyPath = ()
    block: tuple[int, int] = (0, 0)
    affine: tuple[float, float] = (1.0, 0.0)
    shape: Union[tuple[int, ...], None] = None


@noun
class Compute:
    """Tensors become one, ``key`` of the state dict at ``place``, which is computed from them by the ``form``.

    ``paths`` are those that it takes, entries of the state dict or inside one; those entries are removed. ``beside``
    are more, from other files, as dtypes and elements. ``edits.computing`` has the forms, the order in which they take
    their tensors, and the meaning of their ``numbers``. ``dtype`` is that of the first tensor, and of the result.
    """

    paths: tuple[KeyPath, ...]
    key: str
    form: str
    dtype: str
    place: KeyPath = ()
    numbers: tuple[float, ...] = ()
    beside: tuple[tuple[str, View], ...] = ()


@noun
class Cast:
    """The floating-point tensors at these paths get the dtype ``dtype``, as ``Tensor.to`` gives.

    Tensors that share a storage go on sharing it where all of its tensors are among them, with their strides; others
    get contiguous storages of their own. ``exact``: the edit is refused where some value would change.
    """

    paths: tuple[KeyPath, ...]
    dtype: str
    exact: bool = False


@noun
class SetMetadata:
    """The safetensors ``__metadata__`` entry ``key`` becomes ``value``."""

    key: str
    value: str


@noun
class TextMetadata:
    """The safetensors ``__metadata__`` entries that are not text become the text of their JSON; those of null go.

    ``entries`` are all of them: name and text (None: null).
    """

    entries: tuple[tuple[str, Union[str, None]], ...]


@noun
class SetSuffix:
    """The output file gets this suffix; no byte changes."""

    suffix: str


@noun
class Truncate:
    """The file ends after ``length`` bytes."""

    length: int


@noun
class Convert:
    """The contents move to another container: a format name such as "torch zip"."""

    format: str


@noun
class Unwrap:
    """Every tensor of these classes becomes the one tensor that it wraps.

    ``storages`` (by key) go with the classes: no tensor that the contents show uses them.
    """

    classes: tuple[str, ...]
    storages: tuple[str, ...] = ()


@noun
class WriteIndex:
    """The index ``name`` of a folder of shards is written again from their headers; no other file changes."""

    name: str


Edit = Union[
    Rename,
    RenameModules,
    Renumber,
    Reorder,
    Retag,
    MoveToCpu,
    Drop,
    TakeRoot,
    Compact,
    MakeContiguous,
    Clone,
    Densify,
    Replace,
    MakeTensors,
    Repickle,
    Flatten,
    Reshape,
    Transpose,
    Fill,
    Split,
    Fuse,
    FuseNorm,
    Dequantize,
    Compute,
    Tie,
    Cast,
    SetMetadata,
    TextMetadata,
    SetSuffix,
    Truncate,
    Convert,
    Unwrap,
    WriteIndex,
]
