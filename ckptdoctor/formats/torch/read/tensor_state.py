"""Follows what torch does to a tensor after it was made: attributes that its state sets, and BUILD.

Nearly all of it leaves the values alone: ``requires_grad``, hooks, attributes of people's own. Some of it replaces
them. What old files of torch write (``set_`` of a storage, the five values of a Variable) is followed; anything else
is told (``ReplacedError``), for a tensor that is shown must be the one that ``torch.load`` returns. torch does all of
this with ``weights_only=True`` as well.

Sources: ``torch._utils._set_obj_state`` (attributes), ``torch.Tensor.__setstate__`` and ``load`` of
``torch._weights_only_unpickler`` (BUILD).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ckptdoctor.checkpoint import DType, KeyPath, Special, Tensor
from ckptdoctor.formats.torch.read.numpy_arrays import Array
from ckptdoctor.formats.torch.read.objects import Kind, object_shape
from ckptdoctor.formats.torch.read.values import ITEM_STEPS, PAIR_STEPS, Details, bare, call, full_name, items, text
from ckptdoctor.formats.torch.read.views import PARAMETER_MAKERS, OddTensor
from ckptdoctor.noun import replace
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, Mutation, String, Tuple, Value

# classes of which it is known what setting an attribute does; others may have properties of their own
PLAIN_CLASSES = frozenset({"torch.Tensor", "torch._tensor.Tensor", "torch.tensor.Tensor", *PARAMETER_MAKERS})

# attributes of a tensor that write values, or make another object of it
WRITING = frozenset({"data", "real", "imag", "__class__", "__dict__"})

# methods that torch calls on a tensor while it loads it; an attribute of that name is called in their place
CALLED = frozenset({"__setstate__", "as_subclass", "detach", "numel", "requires_grad_", "set_", "to"})

# attributes that torch has, and does not let anybody set
READ_ONLY = frozenset({
    "H", "T", "__cuda_array_interface__", "__weakref__", "_base", "_cdata", "_has_symbolic_sizes_strides",
    "_python_dispatch", "_version", "device", "dtype", "grad_fn", "is_cpu", "is_cuda", "is_ipu", "is_leaf", "is_maia",
    "is_meta", "is_mkldnn", "is_mps", "is_mtia", "is_nested", "is_quantized", "is_sparse", "is_sparse_csr",
    "is_vulkan", "is_xla", "is_xpu", "itemsize", "layout", "mH", "mT", "name", "nbytes", "ndim", "output_nr",
    "retains_grad", "shape",
})  # fmt: skip

# attributes that take a gradient, or nothing
GRADIENTS = frozenset({"grad", "_grad"})

# and those that take nothing but None from a file
ONLY_NONE = frozenset({"_grad_fn", "grad_dtype"})


# functions that set attributes from their last argument
STATED = frozenset({"torch._tensor._rebuild_from_type_v2", "torch._utils._rebuild_parameter_with_state"})
_STATE = 3


class Reader(Protocol):
    """The reader of one pickle (``tensors.TensorReader``), as far as whoever makes a tensor asks it for others.

    ``hidden`` says that some tensors have no place among the nouns; ``attributes`` are values, with path and depth,
    that are set on tensors and were not looked at.
    """

    hidden: bool
    attributes: list[tuple[Value, KeyPath, int]]

    def strided(self, kind: str, arguments: list[Value], path: KeyPath, own_dtype: DType | None = None) -> Tensor:
        """Return a view from (storage, offset, size, stride[, requires_grad, …])."""

    def inner(self, value: Value, path: KeyPath, step: str, depth: int) -> Tensor:
        """Return a tensor among the arguments of another one. Raises NotOurs when there is none."""

    def try_inner(self, value: Value, path: KeyPath, depth: int) -> Tensor | None:
        """Return a tensor inside another one, or None where there is none, and after too many."""

    def look_into(self, state: Value) -> None:
        """Remember that there may be tensors in attributes, when there is more than plain values."""

    def values(self, array: Array, element: DType, shape: tuple[int, ...]) -> memoryview | None:
        """Return the elements of an array: the same object each time, so that tensors of one array are known by it."""


class ReplacedError(Exception):
    """What a tensor is given after it was made gives it other values, in a way that is not followed."""


def grad_of(value: Value, element: DType | None) -> bool:
    """Return whether a tensor requires gradients. Raises OddTensor where torch refuses that; a dtype may be unknown."""
    given = bare(value)
    if not isinstance(given, bool):
        raise OddTensor("its requires_grad is neither true nor false")
    if given and element is not None and element.kind not in ("float", "complex"):
        raise OddTensor(f"it requires gradients, which {element.name} cannot have")
    return given


def bits_of(value: Value, element: DType) -> Details:
    """Return the conj and neg bits that a call sets. Raises OddTensor where torch refuses them."""
    if _is_empty(value):
        return ()
    found = dict(_entries(value, "its metadata"))
    bits = {name: bare(found[name]) for name in ("conj", "neg") if name in found}
    if any(given is not None and not isinstance(given, (bool, int, float)) for given in bits.values()):
        raise OddTensor("its conj or neg bit is neither true nor false")
    if bits.get("conj") and element.kind != "complex":
        raise OddTensor(f"its conj bit is set, which {element.name} cannot have")
    return tuple([(name, True) for name, given in bits.items() if given])


# ---- attributes


def with_attributes(
    reader: Reader,
    made: Tensor | None,
    state: Value,
    path: KeyPath,
    depth: int,
    *,
    plain: bool,
    leaf: bool = True,
) -> Tensor | None:
    """Return the tensor with what its state sets.

    None stands for one that could not be read, which is not read here either.

    ``plain`` says that its class is one of torch's own, ``leaf`` that it is not computed from one that requires
    gradients. Raises ReplacedError and OddTensor.
    """
    for name, value in attributes(state, plain=plain):
        if name == "data" and made is not None:
            given = reader.try_inner(value, (*path, Special(".data")), depth)
            if given is not None and shows_the_same(given, made):
                continue  # as bitsandbytes saves its Parameters
        if name in WRITING or name in CALLED:
            raise ReplacedError(f'its state sets the attribute "{name}"')
        if name == "requires_grad" and not leaf and bare(value) is False:
            raise OddTensor("its state takes requires_grad from a tensor of another class")
        if plain and made is not None:
            made = _with_attribute(reader, made, name, value, depth)
    return made


def attributes(state: Value, *, plain: bool) -> Iterator[tuple[str, Value]]:
    """Yield names and values that are set, one after another. Raises OddTensor where torch refuses the state.

    What another class makes of a state is its own affair: of one that looks otherwise nothing is told.
    """
    state = bare(state)
    parts = items(state)
    if parts is not None and len(parts) != 2 and plain:
        raise OddTensor(f"its state is a tuple of {len(parts)} values")
    for part in [state] if parts is None else parts:
        if not plain and (type(bare(part)) is not Made or object_shape(_made(part)).kind is not Kind.MAPPING):
            continue
        if not _is_empty(part):
            yield from _entries(part, "its state", strict=plain)


def _is_empty(part: Value) -> bool:
    """Return whether Python takes it for false: torch passes over it."""
    part = bare(part)
    if isinstance(part, Tuple):
        return not part.items
    return part is None or (isinstance(part, (bool, int, float)) and not part)


def _entries(value: Value, what: str, *, strict: bool = True) -> Iterator[tuple[str, Value]]:
    """Yield the entries of a dict. Raises OddTensor for anything else."""
    node = bare(value)
    shape = object_shape(node) if type(node) is Made else None
    if shape is None or shape.kind is not Kind.MAPPING:
        raise OddTensor(f"{what} is not a dict")
    for key, item in zip(shape.found.keys, shape.found.values, strict=False):
        name, given = text(key), bare(key)
        if strict and (name is None or (isinstance(given, String) and isinstance(given.value, bytes))):
            raise OddTensor(f"{what} has a key that is not a string")
        if name is not None:
            yield name, item


def _made(value: Value) -> Made:
    node = bare(value)
    assert type(node) is Made
    return node


def _with_attribute(reader: Reader, made: Tensor, name: str, value: Value, depth: int) -> Tensor:
    """Return one attribute that leaves the values alone. Raises OddTensor where torch does not let it be set."""
    if name == "requires_grad":
        return replace(made, requires_grad=grad_of(value, made.dtype))
    if name in READ_ONLY or (name in ONLY_NONE and bare(value) is not None):
        raise OddTensor(f'its state sets the attribute "{name}", which cannot be set')
    path = (*made.path, Special(f".{name}"))
    if name in GRADIENTS and bare(value) is not None:
        given = reader.try_inner(value, path, depth)
        if given is None or (given.shape, given.dtype) != (made.shape, made.dtype):
            raise OddTensor("its gradient is not a tensor of its shape and dtype")
    else:
        reader.attributes.append((value, path, depth))
    return made


def shows_the_same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same elements of the same storages."""
    places = [(each.storage.key if each.storage is not None else None, id(each.values)) for each in (one, other)]
    kinds = [
        (each.dtype, each.shape, each.stride, each.offset, each.layout, sorted(each.details), len(each.parts))
        for each in (one, other)
    ]
    return places[0] == places[1] and kinds[0] == kinds[1] and all(map(shows_the_same, one.parts, other.parts))


# ---- BUILD


def is_changed(node: Made) -> bool:
    """Return whether values are put into a tensor after it was made."""
    if any(_changes(step) for step in node.steps or ()):
        return True
    callee, arguments, _ = call(node)
    if full_name(callee) not in STATED or len(arguments) <= _STATE:
        return False
    return any(name in WRITING for name, _ in attributes(arguments[_STATE], plain=False))


def _changes(step: Mutation) -> bool:
    if step.op != op.BUILD:
        return step.op in PAIR_STEPS or step.op in ITEM_STEPS
    given = items(step.payload[0])
    return given is None or len(given) != _FLAGS or not isinstance(bare(given[0]), bool)


_FLAGS, _VIEW, _VARIABLE = 3, 4, 5  # how many values each kind of state has


def built(reader: Reader, made: Tensor, node: Made, path: KeyPath, depth: int) -> Tensor:
    """Return the tensor after all that is done to it. Raises ReplacedError and OddTensor."""
    for step in node.steps or ():
        if step.op in PAIR_STEPS or step.op in ITEM_STEPS:
            raise ReplacedError("the pickle puts items into it after it was made")
        if step.op == op.BUILD:
            made = _given(reader, made, step, path, depth)
    return made


def _given(reader: Reader, made: Tensor, step: Mutation, path: KeyPath, depth: int) -> Tensor:
    """Return the tensor after one BUILD."""
    given = items(step.payload[0])
    if given is None:
        raise ReplacedError("it is given a state that is not a tuple")
    if not _changes(step):
        if made.subclass is not None and made.requires_grad:
            raise OddTensor("its state sets requires_grad of a tensor that was turned into another class")
        return replace(made, requires_grad=grad_of(given[0], made.dtype))
    if step.late:
        raise ReplacedError("it is given a state after it was used elsewhere")
    if len(given) not in (_VIEW, _VARIABLE):
        raise ReplacedError(f"it is given a state of {len(given)} values")
    if not _is_plain(made):
        raise ReplacedError("it is not a plain tensor, but is given a storage or other values")
    return _viewing(reader, made, given, path) if len(given) == _VIEW else _holding(reader, made, given, path, depth)


def _viewing(reader: Reader, made: Tensor, given: list[Value], path: KeyPath) -> Tensor:
    """Read ``tensor.set_(storage, offset, size, stride)``."""
    if made.requires_grad:
        raise OddTensor("it requires gradients, but is given another storage")
    view = reader.strided(made.rebuild, given, path)
    if view.dtype != made.dtype:
        raise OddTensor(f"it is {made.dtype.name}, but is given a storage of {view.dtype.name}")
    return replace(view, is_parameter=made.is_parameter, details=made.details)


def _holding(reader: Reader, made: Tensor, given: list[Value], path: KeyPath, depth: int) -> Tensor:
    """Read ``(data, _, hooks, requires_grad, _)``, the state of a Variable: ``tensor.data = data``."""
    data = reader.try_inner(given[0], (*path, Special(".data")), depth)
    if data is None or not _is_plain(data) or data.storage is None:
        raise ReplacedError("it is given the values of an object that is not a plain tensor")
    if made.requires_grad:
        grad_of(True, data.dtype)
    grad = grad_of(given[3], data.dtype)
    return replace(data, path=path, requires_grad=grad, is_parameter=made.is_parameter, rebuild=made.rebuild)


def _is_plain(tensor: Tensor) -> bool:
    """Return whether it is a view of one storage and nothing else, or has no elements yet."""
    alone = tensor.layout == "strided" and not tensor.parts and tensor.subclass is None
    return alone and tensor.dtype.kind != "quantized" and (tensor.values is NOTHING or _is_stored(tensor))


def _is_stored(tensor: Tensor) -> bool:
    return tensor.storage is not None and not tensor.moved


# the values of a tensor that was made empty
NOTHING = memoryview(b"")
