"""Each of torch's functions and classes that make a tensor when a pickle is loaded has one function here.

They are called with the reader of the pickle, the name of the function, its arguments as torch passes them, the key
path, and how many tensors the tensor is nested in. They raise NotOurs for what is shown as it is, OddTensor for what
torch refuses, and ReplacedError for a tensor that is given other values afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from ckptdoctor.checkpoint import DType, KeyPath, Special, Tensor
from ckptdoctor.checkpoint.dtypes import BY_NAME, BY_STORAGE_CLASS
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.formats.torch.read.numpy_arrays import array_of
from ckptdoctor.formats.torch.read.tensor_state import (
    NOTHING,
    PLAIN_CLASSES,
    STATED,
    Reader,
    bits_of,
    grad_of,
    with_attributes,
)
from ckptdoctor.formats.torch.read.values import (
    CALLS,
    Details,
    NotOurs,
    bare,
    call,
    device_name,
    dtype,
    full_name,
    integer,
    items,
    layout_name,
    plain_dict,
)
from ckptdoctor.formats.torch.read.views import PARAMETER_MAKERS, OddTensor, shape_of, view_of
from ckptdoctor.noun import noun, replace
from ckptdoctor.pickles.graph import Made, Value
from ckptdoctor.wording import plural

# tensors wrapped in tensors (a Parameter of a subclass of …) beyond this depth are shown as objects
MAX_WRAPPING = 8

_UTILS = "torch._utils._rebuild_"


# ---- calls that make a tensor on the CPU and move it to a device without storages, where it was when it was saved
#
# Source: ``torch.Tensor._reduce_ex_internal`` of torch 2.13 (a CPU tensor), and of torch before 2.6 (a NumPy array).


# (data, dtype, device, requires_grad)
FROM_CPU = f"{_UTILS}device_tensor_from_cpu_tensor"
FROM_ARRAY = frozenset({f"{_UTILS}device_tensor_from_numpy", f"{_UTILS}xla_tensor"})

# functions that make tensors of all kinds but those that wrap others, and where they take requires_grad
GRAD = {f"{_UTILS}tensor_v2": 4, f"{_UTILS}tensor_v3": 4, f"{_UTILS}qtensor": 5}
PLAIN_MAKERS = frozenset({*GRAD, f"{_UTILS}sparse_tensor"})


@noun(frozen=False)
class Mover:
    """One such call. ``node`` makes the CPU tensor or the array; ``maker`` is its function."""

    node: Made
    maker: str
    dtype: Value
    device: str
    requires_grad: bool


def mover(name: str | None, arguments: list[Value]) -> Mover | None:
    """Return what a function of this name moves with these arguments, or None where it does not, or not plainly."""
    if (name != FROM_CPU and name not in FROM_ARRAY) or len(arguments) != 4:
        return None
    node = bare(arguments[0])
    if not isinstance(node, Made) or node.op not in CALLS:
        return None
    maker = full_name(call(node)[0])
    if maker is None or (name == FROM_CPU and (maker not in PLAIN_MAKERS or node.steps is not None)):
        return None
    try:
        device = device_name(arguments[2])
    except NotOurs:
        return None
    return Mover(node, maker, arguments[1], device, bare(arguments[3]) is True)


def inside_type(arguments: list[Value]) -> tuple[str | None, list[Value]]:
    """Return the function that ``_rebuild_from_type`` calls, and its arguments."""
    return full_name(arguments[0]), items(arguments[2]) or []


# ---- a function each


def tensor_v2(reader: Reader, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
    """Return a view of a typed storage; the seventh argument holds the conj and neg bits."""
    _expect(arguments, *((4,) if kind == _OLD else (6, 7)))
    made = reader.strided(kind, arguments, path)
    return replace(made, details=bits_of(arguments[6], made.dtype)) if len(arguments) > 6 else made


def tensor_v3(reader: Reader, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
    """Return a view of an untyped storage, with the dtype among the arguments."""
    _expect(arguments, 7, 8)
    element = _require_dtype(arguments[6])
    made = reader.strided(kind, arguments, path, element)
    return replace(made, details=bits_of(arguments[7], element)) if len(arguments) > 7 else made


def parameter(reader: Reader, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
    """Read ``(data, requires_grad, hooks[, attributes])``.

    A plain call of the class may give it no data.
    """
    _expect(arguments, *_PARAMETER.get(kind, (0, 1, 2)))
    if not arguments:
        return replace(empty(reader, kind, [], path, depth), requires_grad=True, is_parameter=True)
    data = reader.try_inner(arguments[0], path, depth)
    grad = grad_of(True if len(arguments) < 2 else arguments[1], None if data is None else data.dtype)
    if data is not None:
        data = replace(data, requires_grad=grad, is_parameter=True, rebuild=kind)
    if len(arguments) == 4:
        reader.look_into(arguments[3])
        data = with_attributes(reader, data, arguments[3], path, depth, plain=True)
    return require(data)


def empty(reader: Reader, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
    """Return a tensor without elements, of a class: it is one of ours once BUILD has given it some."""
    if arguments:
        raise NotOurs
    element = BY_NAME[_EMPTY.get(kind, "float32")]
    return Tensor(path, element, (0,), (1,), None, 0, "cpu", rebuild=kind, values=NOTHING)


def sparse(reader: Reader, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
    """Read ``(layout, data)``: indices, values, size[, coalesced] for COO, two kinds of indices for the others."""
    _expect(arguments, 2)
    layout = layout_name(arguments[0])
    data = items(arguments[1])
    if layout not in _SPARSE_PARTS or data is None:
        raise NotOurs
    names = _SPARSE_PARTS[layout]
    _expect(data, *((3, 4) if layout == "sparse_coo" else (4,)))
    parts = tuple([reader.inner(value, path, f".{name}", depth) for name, value in zip(names, data, strict=False)])
    values = parts[-1]
    shape = shape_of(data[len(names)], values.dtype)
    coalesced = bare(data[-1]) if len(data) == len(names) + 2 else None
    details: Details = (("coalesced", coalesced),) if isinstance(coalesced, bool) else ()
    return _made_of(parts, path, kind, layout, values.dtype, shape, values.device, details)


def nested(reader: Reader, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
    """Read ``(buffer, sizes, strides, offsets)`` of a nested tensor; its shape is that of the flat buffer."""
    _expect(arguments, 4)
    names = ("values", "sizes", "strides", "offsets")
    pairs = zip(names, arguments, strict=True)
    parts = tuple([reader.inner(value, path, f".{name}", depth) for name, value in pairs])
    values = parts[0]
    return _made_of(parts, path, kind, "jagged", values.dtype, values.shape, values.device)


def jagged(reader: Reader, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
    """Read ``({"values", "offsets", …},)`` of a jagged nested tensor; its shape is that of ``values``."""
    _expect(arguments, 1)
    found = plain_dict(arguments[0])
    parts = [
        reader.inner(found[name], path, f".{name}", depth)
        for name in ("values", "offsets", "lengths")
        if found.get(name) is not None
    ]
    if not parts:
        raise NotOurs
    values = parts[0]
    grad = found.get("requires_grad") is True
    made = _made_of(tuple(parts), path, kind, "jagged", values.dtype, values.shape, values.device)
    return replace(made, requires_grad=grad)


def quantized(reader: Reader, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
    """Read ``(storage, offset, size, stride, (scheme, …), requires_grad, hooks)``."""
    _expect(arguments, 7)
    made = reader.strided(kind, [*arguments[:4], arguments[5]], path)
    parameters = items(arguments[4])
    scheme = full_name(parameters[0]) if parameters else None
    if parameters is None or scheme is None:
        raise NotOurs
    name = scheme.removeprefix("torch.")
    if name == "per_tensor_affine" and len(parameters) == 3:
        scale, zero_point = bare(parameters[1]), bare(parameters[2])
        if not isinstance(scale, (int, float)) or not isinstance(zero_point, int):
            raise NotOurs
        return replace(made, details=(("scheme", name), ("scale", scale), ("zero_point", zero_point)))
    if len(parameters) != 4:
        raise NotOurs
    axis = integer(parameters[3])
    if axis is None:
        raise NotOurs
    pairs = zip(("scales", "zero_points"), parameters[1:3], strict=True)
    parts = tuple([reader.inner(value, path, f".{step}", depth) for step, value in pairs])
    return replace(made, parts=parts, details=(("scheme", name), ("axis", axis)))


def of_type(reader: Reader, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
    """Read ``(function, class, its arguments, state)`` of a tensor subclass, or of a tensor with attributes."""
    _expect(arguments, 4)
    function, inside, state = full_name(arguments[0]), items(arguments[2]), arguments[3]
    name = full_name(arguments[1])
    made: Tensor | None = None
    if function in REBUILD and inside is not None and depth <= MAX_WRAPPING:
        with suppress(NotOurs):
            made = REBUILD[function](reader, function, inside, path, depth + 1)
    if kind == _TYPED:  # what it does not set as attributes it puts where nothing but people's own code looks
        same = made is None or made.is_parameter == (name in PARAMETER_MAKERS)
        leaf = made is None or not made.requires_grad or (same and name in PLAIN_CLASSES)
        made = with_attributes(reader, made, state, path, depth, plain=name in PLAIN_CLASSES, leaf=leaf)
    if made is None or made.values is NOTHING:
        raise NotOurs
    parts = made.parts
    if made.storage is None and not parts:
        parts = _parts_in_state(reader, state, path, depth)
    else:
        reader.look_into(state)
    return replace(made, subclass=made.subclass if name == "torch.Tensor" else name, parts=parts, rebuild=kind)


def _parts_in_state(reader: Reader, state: Value, path: KeyPath, depth: int) -> tuple[Tensor, ...]:
    """Return the tensors among the attributes of a wrapper: its ``__dict__``, or (``__dict__``, slots)."""
    parts = []
    for one in items(state) or [state]:
        for name, value in plain_dict(one).items():
            found = reader.try_inner(value, (*path, Special(f".{name}")), depth)
            if found is not None:
                parts.append(found)
            elif type(bare(value)) is Made:
                reader.hidden = True
    if not parts:  # whatever it holds lies deeper
        reader.hidden = True
    return tuple(parts)


def wrapper(reader: Reader, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
    """Read ``(class, dtype, size, stride, offset, layout, device, requires_grad)``: no storage of its own."""
    _expect(arguments, 8)
    element = _require_dtype(arguments[1])
    shape, stride, offset, _ = view_of(arguments[2], arguments[3], arguments[4], element)
    return Tensor(
        path,
        element,
        shape,
        stride,
        None,
        offset,
        device_name(arguments[6]),
        grad_of(arguments[7], element),
        rebuild=kind,
        layout=layout_name(arguments[5]) or "strided",
        subclass=full_name(arguments[0]) or "",
    )


def meta(reader: Reader, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
    """Read ``(dtype, size, stride, requires_grad)``: shape without values."""
    _expect(arguments, 4)
    element = _require_dtype(arguments[0])
    shape, stride, _, _ = view_of(arguments[1], arguments[2], 0, element)
    return Tensor(path, element, shape, stride, None, 0, "meta", grad_of(arguments[3], element), rebuild=kind)


def from_cpu(reader: Reader, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
    """Read ``(CPU tensor, dtype, device, requires_grad)``: the CPU tensor, which torch moves to the device."""
    _expect(arguments, 4)
    element = _require_dtype(arguments[1])
    grad = grad_of(arguments[3], element)
    data = reader.inner(arguments[0], path, "", depth)
    if data.device == "meta" and device_name(arguments[2]) != "meta":
        raise OddTensor("it is made of a tensor without values")
    moved = data.device != device_name(arguments[2])  # with map_location="cpu" to where it is
    if data.requires_grad and (data.dtype != element or (moved and not grad)):
        raise OddTensor(
            "it is computed from a tensor that requires gradients, so torch cannot determine whether it does"
        )
    if data.rebuild not in PLAIN_MAKERS or data.dtype != element:
        raise NotOurs
    if grad and data.parts and data.storage is None:  # a sparse tensor has no place to say so
        raise NotOurs
    return replace(data, device=device_name(arguments[2]), requires_grad=grad, rebuild=kind)


def from_numpy(reader: Reader, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
    """Read ``(array, dtype, device, requires_grad)``: the values are in the pickle, as the array's bytes."""
    _expect(arguments, 4)
    element, array = _require_dtype(arguments[1]), array_of(arguments[0])
    if array is None:
        raise NotOurs
    shape = shape_of(array.shape, element)
    stride = contiguous_stride(shape[::-1])[::-1] if array.fortran else contiguous_stride(shape)
    device, grad = device_name(arguments[2]), grad_of(arguments[3], element)
    values = reader.values(array, element, shape)
    return Tensor(path, element, shape, stride, None, 0, device, grad, rebuild=kind, values=values)


def _made_of(
    parts: tuple[Tensor, ...],
    path: KeyPath,
    kind: str,
    layout: str,
    element: DType,
    shape: tuple[int, ...],
    device: str,
    details: Details = (),
) -> Tensor:
    return Tensor(path, element, shape, (), None, 0, device, rebuild=kind, layout=layout, parts=parts, details=details)


def _expect(arguments: list[Value], *counts: int) -> None:
    """Raise OddTensor where a function is not given as many arguments as it takes."""
    if len(arguments) not in counts:
        few = " or ".join(map(str, counts))
        raise OddTensor(f"its function is given {plural(len(arguments), 'argument')} and takes {few}")


def require(found: Tensor | None) -> Tensor:
    """Return what must be a tensor. Raises NotOurs where it is none."""
    if found is None:
        raise NotOurs
    return found


def _require_dtype(value: Value) -> DType:
    found = dtype(value)
    if found is None:
        raise NotOurs
    return found


_SPARSE_PARTS = {
    "sparse_coo": ("indices", "values"),
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
    "sparse_bsr": ("crow_indices", "col_indices", "values"),
    "sparse_bsc": ("ccol_indices", "row_indices", "values"),
}

_OLD, _TYPED = "torch._utils._rebuild_tensor", "torch._tensor._rebuild_from_type_v2"

# functions through which state may reach more than their own tensor: one that returns what it is given among them
REACHING = frozenset({*STATED, FROM_CPU})

_PARAMETER = {"torch._utils._rebuild_parameter": (3,), "torch._utils._rebuild_parameter_with_state": (4,)}

# the classes of tensors by the dtype of their elements
_EMPTY = {
    "torch.Tensor": "float32",
    **{
        f"torch.{module}{kind.removesuffix('Storage')}Tensor": element.name
        for kind, element in BY_STORAGE_CLASS.items()
        for module in ("", "cuda.")
    },
}
CLASSES = frozenset({"torch.nn.parameter.Parameter", *_EMPTY})

_Rebuild = Callable[[Reader, str, list[Value], KeyPath, int], Tensor]

# the functions of torch 2.13 and before that rebuild tensors, and the classes whose call with a tensor gives one
REBUILD: dict[str, _Rebuild] = {
    _OLD: tensor_v2,
    "torch._utils._rebuild_tensor_v2": tensor_v2,
    "torch._utils._rebuild_tensor_v3": tensor_v3,
    "torch._utils._rebuild_parameter": parameter,
    "torch._utils._rebuild_parameter_with_state": parameter,
    "torch.nn.parameter.Parameter": parameter,
    **dict.fromkeys(_EMPTY, empty),
    "torch._utils._rebuild_sparse_tensor": sparse,
    "torch._utils._rebuild_nested_tensor": nested,
    "torch.nested._internal.nested_tensor._rebuild_njt": jagged,
    "torch._utils._rebuild_qtensor": quantized,
    "torch._tensor._rebuild_from_type": of_type,
    _TYPED: of_type,
    "torch._utils._rebuild_wrapper_subclass": wrapper,
    "torch._utils._rebuild_meta_tensor_no_storage": meta,
    FROM_CPU: from_cpu,
    **dict.fromkeys(sorted(FROM_ARRAY), from_numpy),
}
