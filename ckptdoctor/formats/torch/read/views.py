"""Reads views of storages: shapes, strides and offsets as the file states them, and where the graph makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from ckptdoctor.checkpoint import DType
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.formats.torch.read.storages import MAX_COUNT, Claim, claim_of
from ckptdoctor.formats.torch.read.values import CALLS, bare, call, dtype, full_name, integer, items
from ckptdoctor.noun import field, noun
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, PersistentId, PickleNode, Tuple, Value

# at::TensorImpl takes more, but no operation does (kMaxDimensions of TensorIterator and of DLPack exporters)
MAX_DIMENSIONS = 64


class OddTensor(Exception):
    """What the file says of a tensor cannot be one; the text says why."""


def integers(value: Value, what: str) -> tuple[int, ...]:
    """Return the sizes or strides of a tensor. Raises OddTensor when they are anything but integers of 64 bits."""
    given = value.items if type(value) is Tuple else items(value)
    if given is None:
        raise OddTensor(f"its {what} is not a tuple")
    if len(given) > MAX_DIMENSIONS:
        raise OddTensor(f"its {what} has {len(given)} dimensions, and torch supports only {MAX_DIMENSIONS}")
    found = []
    for item in given:
        number = item if type(item) is int else integer(item)
        if number is None:
            raise OddTensor(f"its {what} holds a value that is not an integer")
        if not 0 <= number <= MAX_COUNT:
            raise OddTensor(f"its {what} holds a number that is negative or beyond 64 bits")
        found.append(number)
    return tuple(found)


def offset_of(value: Value) -> int:
    """Return the storage offset of a tensor. Raises OddTensor when it is not an integer from 0 to 2^63 - 1."""
    number = value if type(value) is int else integer(value)
    if number is None or not 0 <= number <= MAX_COUNT:
        raise OddTensor("its storage offset is not a number from 0 up to 64 bits")
    return number


def shape_of(value: Value, dtype: DType) -> tuple[int, ...]:
    """Return the shape of a tensor. Raises OddTensor when its elements are beyond counting."""
    shape = integers(value, "shape")
    if prod(shape) * max(1, dtype.bits // 8) > MAX_COUNT:
        raise OddTensor("it has more bytes than 64 bits can count")
    return shape


ViewNumbers = tuple[tuple[int, ...], tuple[int, ...], int, int]


def view_of(size: Value, stride: Value, offset: Value, dtype: DType) -> ViewNumbers:
    """Return shape, strides, offset, and the number of elements that the storage must have for them.

    Raises OddTensor when no tensor can be like that.
    """
    usual = _usual_view(size, stride, offset, dtype)
    if usual is not None:
        return usual
    start = offset_of(offset)
    shape, strides = shape_of(size, dtype), integers(stride, "stride")
    if len(shape) != len(strides):
        raise OddTensor(f"it has {len(shape)} sizes but {len(strides)} strides")
    if 0 in shape:
        return shape, strides, start, 0
    reach = start + 1
    for extent, step in zip(shape, strides, strict=True):
        reach += (extent - 1) * step
    if reach > MAX_COUNT:
        raise OddTensor("its elements are farther apart than 64 bits can count")
    return shape, strides, start, reach


def _usual_view(size: Value, stride: Value, offset: Value, dtype: DType) -> ViewNumbers | None:
    """Return the same for what nearly every tensor is, in one pass, or None where it takes a closer look."""
    if type(size) is not Tuple or type(stride) is not Tuple or type(offset) is not int or offset < 0:
        return None
    sizes, strides = size.items, stride.items
    reach = usual_reach(sizes, strides, offset, dtype)
    if reach is None:
        return None
    return tuple(sizes), tuple(strides), offset, reach  # type: ignore[arg-type]  # usual_reach saw integers only


def usual_reach(sizes: Sequence[Value], strides: Sequence[Value], offset: int, dtype: DType) -> int | None:
    """Return the elements that a storage needs for a view with elements, or None for one that is empty or cannot be."""
    if len(sizes) != len(strides) or len(sizes) > MAX_DIMENSIONS or offset < 0:
        return None
    count, reach = max(1, dtype.bits >> 3), offset + 1
    for extent, step in zip(sizes, strides):  # noqa: B905  # the lengths are equal
        if type(extent) is not int or type(step) is not int or extent < 1 or step < 0:
            return None
        count *= extent
        reach += (extent - 1) * step
    return reach if count <= MAX_COUNT and reach <= MAX_COUNT else None


# ---- where the graph makes views of storages, so that they can be changed


_UTILS = "torch._utils._rebuild_"

# functions whose first four arguments are storage, offset, size and stride
VIEW_MAKERS = frozenset({f"{_UTILS}tensor", f"{_UTILS}tensor_v2", f"{_UTILS}tensor_v3", f"{_UTILS}qtensor"})

# functions and classes whose first argument is the tensor that they make a Parameter of
PARAMETER_MAKERS = frozenset({f"{_UTILS}parameter", f"{_UTILS}parameter_with_state", "torch.nn.parameter.Parameter"})

# functions that are called with (function, class, its arguments, state)
TYPE_MAKERS = frozenset({"torch._tensor._rebuild_from_type", "torch._tensor._rebuild_from_type_v2"})


@noun(frozen=False)
class View:
    """One view: ``arguments`` is the list in the graph; offset, strides and ``reach`` count elements of ``dtype``."""

    arguments: list[Value]
    reference: PersistentId
    claim: Claim
    dtype: DType
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    reach: int

    @property
    def itemsize(self) -> int:
        """Bytes of one element in the storage."""
        return max(1, self.dtype.bits // 8)

    @property
    def span(self) -> tuple[int, int]:
        """First byte and one past the last byte that the view touches."""
        if self.reach == 0:
            return self.offset * self.itemsize, self.offset * self.itemsize
        return self.offset * self.itemsize, self.reach * self.itemsize


@noun(frozen=False)
class Users:
    """Who uses one storage: its views, all references to it, and whether it is saved on its own, too."""

    references: list[PersistentId] = field(default_factory=list)
    views: list[View] = field(default_factory=list)

    @property
    def bare(self) -> bool:
        """Whether some reference to the storage is not the first argument of a view."""
        viewed = {id(view.reference) for view in self.views}
        return any(id(reference) not in viewed for reference in self.references)


def users_of_storages(nodes: Iterable[PickleNode]) -> dict[str, Users]:
    """Return every storage key with its users, in the order of first use.

    ``nodes`` are all of the graph, in stream order.
    """
    found: dict[str, Users] = {}
    views: list[View] = []
    seen: set[int] = set()
    for node in nodes:
        if type(node) is PersistentId:
            claim = claim_of(node)
            if claim is not None:
                found.setdefault(claim.key, Users()).references.append(node)
        elif type(node) is Made and node.op in CALLS:
            view = _view_made_by(node)
            if view is not None and id(view.arguments) not in seen:
                seen.add(id(view.arguments))
                views.append(view)
    for view in views:
        found[view.claim.key].views.append(view)
    return found


def _view_made_by(node: Made) -> View | None:
    callee, arguments, _ = call(node)
    name = full_name(callee)
    if name in TYPE_MAKERS and len(arguments) == 4:
        name, inside = full_name(arguments[0]), items(arguments[2])
        arguments = [] if inside is None else inside
    return view_in(name, arguments)


def view_in(name: str | None, arguments: list[Value]) -> View | None:
    """Return the view that a rebuilding function of this name makes of these arguments, or None when it makes none."""
    if name not in VIEW_MAKERS or len(arguments) < 4:
        return None
    reference = bare(arguments[0])
    claim = claim_of(reference) if type(reference) is PersistentId else None
    if claim is None or type(reference) is not PersistentId:
        return None
    element = dtype(arguments[6]) if name.endswith("_v3") and len(arguments) > 6 else claim.dtype
    element = element or BY_NAME["uint8"]
    try:
        shape, stride, offset, reach = view_of(arguments[2], arguments[3], arguments[1], element)
    except OddTensor:
        return None
    return View(arguments, reference, claim, element, shape, stride, offset, reach)


def tuple_of(values: tuple[int, ...]) -> Tuple:
    """Return a tuple of integers; the encoder finds the opcode for its length."""
    return Tuple(op.TUPLE1 if values else op.EMPTY_TUPLE, list(values))
