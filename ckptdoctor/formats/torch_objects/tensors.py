"""Tensors out of the calls that rebuild them when torch loads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ckptdoctor.checkpoint import DType, KeyPath, Note, NoteKind, Special, Tensor, show_path
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.checkpoint.making import make_tensor
from ckptdoctor.checkpoint.tensor import contiguous_stride
from ckptdoctor.formats.torch_objects.arguments import Details, NotOurs, device_name, layout_name, plain_dict, set_bits
from ckptdoctor.formats.torch_objects.arrays import Array, array_of, elements
from ckptdoctor.formats.torch_objects.movers import FROM_ARRAY, FROM_CPU, PLAIN_MAKERS
from ckptdoctor.formats.torch_objects.storages import Known, Registry
from ckptdoctor.formats.torch_objects.values import CALLS, bare, call, dtype, full_name, integer, items
from ckptdoctor.formats.torch_objects.views import OddTensor, shape_of, usual_reach, view_of
from ckptdoctor.pickles.folded import FoldedTensor
from ckptdoctor.pickles.graph import Global, Made, PersistentId, Tuple, Value

# tensors wrapped in tensors (a Parameter of a subclass of …) beyond this depth are shown as objects
_MAX_WRAPPING = 8

# tensors inside tensors that are read at the least; shared ones could multiply without end
INNER_READS = 100_000


class TensorReader:
    """Reads the tensors of one pickle. ``notes`` gathers what is wrong with them, by key path.

    ``hidden`` tells whether some tensors lie where the nouns have no place for them: in attributes of Parameters.
    """

    def __init__(self, registry: Registry, member: str, inner_budget: int = INNER_READS) -> None:
        self._registry = registry
        self._member = member
        self._kinds: dict[int, str | None] = {}  # id of a Global node → name of the rebuilding function
        self._inner_left = inner_budget
        self._arrays: dict[tuple[int, str], memoryview | None] = {}  # by id of the node, and dtype
        self.notes: list[Note] = []
        self.hidden = False

    def read(self, node: Made, path: KeyPath, depth: int = 0) -> Tensor | None:
        """The tensor that this object is; None when it is none, or cannot be one (a note then says why)."""
        folded = node.folded
        callee = node.items[0] if folded is None else folded.callee
        kind = self._kinds.get(id(callee), "") if type(callee) is Global else self._kind(callee)
        if kind == "":
            kind = self._kinds[id(callee)] = self._kind(callee)
        if kind is None or depth > _MAX_WRAPPING:
            return None
        try:
            if kind == "torch._utils._rebuild_tensor_v2":
                plain = None if folded is None else self._folded(kind, folded, path)
                if plain is not None:
                    return plain
                arguments = node.items[1]
                if type(arguments) is Tuple and len(arguments.items) == 6:
                    return self._strided(kind, arguments.items, path)
            return _REBUILD[kind](self, kind, call(node)[1], path, depth)
        except OddTensor as error:
            message = f"{show_path(path)} cannot be a tensor: {error}; torch refuses the file"
            self.notes.append(Note(NoteKind.TENSOR_ODD, message, self._member))
        except NotOurs:
            pass
        return None

    def raw_storage(self, node: PersistentId, path: KeyPath) -> Tensor | None:
        """A storage saved on its own, as the flat tensor of its bytes or elements."""
        known = self._registry.get(node)
        if known is None:
            return None
        kind = known.claim.dtype if known.claim.dtype is not None else _BYTES
        size = (known.claim.numel,)
        return Tensor(path, kind, size, (1,), known.storage, 0, known.storage.device, rebuild=known.claim.class_name)

    @staticmethod
    def _kind(callee: Value) -> str | None:
        name = full_name(callee)
        return name if name in _REBUILD else None

    def _strided(self, kind: str, arguments: list[Value], path: KeyPath, own_dtype: DType | None = None) -> Tensor:
        """A view from (storage, offset, size, stride[, requires_grad, …])."""
        known, element = self._storage(arguments[0], own_dtype)
        shape, stride, offset, reach = view_of(arguments[2], arguments[3], arguments[1], element)
        storage = known.storage
        if known.shift:
            offset, reach = offset + known.shift, reach + known.shift if reach else 0
        if reach * element.bits > storage.nbytes * 8:
            self._out_of_bounds(path, reach, known, element)
        grad = len(arguments) > 4 and arguments[4] is True
        return make_tensor(path, element, shape, stride, storage, offset, storage.device, grad, kind)

    def _folded(self, kind: str, folded: FoldedTensor, path: KeyPath) -> Tensor | None:
        """The same from the numbers of a folded call; None where it takes a closer look."""
        known = self._registry.folded(folded)
        if known is None or known.claim.dtype is None:
            return None
        element, storage = known.claim.dtype, known.storage
        reach = usual_reach(folded.shape, folded.stride, folded.offset, element)
        if reach is None:
            return None
        if reach * element.bits > storage.nbytes * 8:
            self._out_of_bounds(path, reach, known, element)
        shape, stride, grad = folded.shape, folded.stride, folded.requires_grad
        return make_tensor(path, element, shape, stride, storage, folded.offset, storage.device, grad, kind)

    def _storage(self, reference: Value, own_dtype: DType | None) -> tuple[Known, DType]:
        known = self._registry.get(reference, own_dtype)
        if known is None:
            raise OddTensor("it names no storage that torch would know")
        element = own_dtype if own_dtype is not None else known.claim.dtype
        return known, _BYTES if element is None else element

    def _out_of_bounds(self, path: KeyPath, reach: int, known: Known, element: DType) -> None:
        storage = known.storage
        there = storage.nbytes * 8 // element.bits
        message = (
            f"{show_path(path)} reaches to element {reach:,} of storage {storage.key}, which has {there:,}; "
            "torch refuses the file"
        )
        self.notes.append(Note(NoteKind.TENSOR_OUT_OF_BOUNDS, message, self._member))

    def _inner(self, value: Value, path: KeyPath, step: str, depth: int) -> Tensor:
        """A tensor among the arguments of another one. Raises NotOurs when there is none."""
        found = self._try_inner(value, (*path, Special(step)) if step else path, depth)
        if found is None:
            raise NotOurs
        return found

    def _try_inner(self, value: Value, path: KeyPath, depth: int) -> Tensor | None:
        value = bare(value)
        if type(value) is not Made or value.op not in CALLS:
            return None
        self._inner_left -= 1
        if self._inner_left < 0:
            self.hidden = True
            return None
        return self.read(value, path, depth + 1)

    # ---- one method for each rebuilding function; arguments as torch passes them

    def tensor_v2(self, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
        """A view of a typed storage; the seventh argument holds the conj and neg bits."""
        _expect(arguments, 4, 7)
        made = self._strided(kind, arguments, path)
        return replace(made, details=set_bits(arguments[6])) if len(arguments) > 6 else made

    def tensor_v3(self, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
        """A view of an untyped storage, with the dtype among the arguments."""
        _expect(arguments, 7, 8)
        element = _insist_dtype(arguments[6])
        made = self._strided(kind, arguments, path, element)
        return replace(made, details=set_bits(arguments[7])) if len(arguments) > 7 else made

    def parameter(self, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
        """``(data, requires_grad, hooks[, attributes])``; also a plain call of the class."""
        _expect(arguments, 1, 4)
        data = self._inner(arguments[0], path, "", depth)
        grad = True if len(arguments) < 2 else arguments[1] is True
        if len(arguments) == 4:
            self._look_into(arguments[3])
        return replace(data, requires_grad=grad, is_parameter=True, rebuild=kind)

    def sparse(self, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
        """``(layout, data)``: indices, values, size[, coalesced] for COO, two kinds of indices for the others."""
        _expect(arguments, 2, 2)
        layout = layout_name(arguments[0])
        data = items(arguments[1])
        if layout not in _SPARSE_PARTS or data is None:
            raise NotOurs
        names = _SPARSE_PARTS[layout]
        _expect(data, len(names) + 1, len(names) + 2)
        parts = tuple([self._inner(value, path, f".{name}", depth) for name, value in zip(names, data, strict=False)])
        values = parts[-1]
        shape = shape_of(data[len(names)], values.dtype)
        coalesced = bare(data[-1]) if len(data) == len(names) + 2 else None
        details: Details = (("coalesced", coalesced),) if isinstance(coalesced, bool) else ()
        return _made_of(parts, path, kind, layout, values.dtype, shape, values.device, details)

    def nested(self, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
        """``(buffer, sizes, strides, offsets)`` of a nested tensor; its shape is that of the flat buffer."""
        _expect(arguments, 4, 4)
        names = ("values", "sizes", "strides", "offsets")
        pairs = zip(names, arguments, strict=True)
        parts = tuple([self._inner(value, path, f".{name}", depth) for name, value in pairs])
        values = parts[0]
        return _made_of(parts, path, kind, "jagged", values.dtype, values.shape, values.device)

    def jagged(self, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
        """``({"values", "offsets", "lengths", …},)`` of a jagged nested tensor; its shape is that of ``values``."""
        _expect(arguments, 1, 1)
        found = plain_dict(arguments[0])
        parts = [
            self._inner(found[name], path, f".{name}", depth)
            for name in ("values", "offsets", "lengths")
            if found.get(name) is not None
        ]
        if not parts:
            raise NotOurs
        values = parts[0]
        grad = found.get("requires_grad") is True
        made = _made_of(tuple(parts), path, kind, "jagged", values.dtype, values.shape, values.device)
        return replace(made, requires_grad=grad)

    def quantized(self, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
        """``(storage, offset, size, stride, (scheme, …), requires_grad, hooks)``."""
        _expect(arguments, 6, 7)
        made = self._strided(kind, [*arguments[:4], arguments[5]], path)
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
        parts = tuple([self._inner(value, path, f".{step}", depth) for step, value in pairs])
        return replace(made, parts=parts, details=(("scheme", name), ("axis", axis)))

    def of_type(self, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
        """``(function, class, its arguments, state)`` of a tensor subclass, or of a tensor with attributes."""
        _expect(arguments, 4, 4)
        function, inside = full_name(arguments[0]), items(arguments[2])
        if function not in _REBUILD or inside is None or depth > _MAX_WRAPPING:
            raise NotOurs
        made = _REBUILD[function](self, function, inside, path, depth + 1)
        name = full_name(arguments[1])
        subclass = made.subclass if name == "torch.Tensor" else name
        parts = made.parts
        if made.storage is None and not parts:
            parts = self._parts_in_state(arguments[3], path, depth)
        else:
            self._look_into(arguments[3])
        return replace(made, subclass=subclass, parts=parts, rebuild=kind)

    def _parts_in_state(self, state: Value, path: KeyPath, depth: int) -> tuple[Tensor, ...]:
        """The tensors among the attributes of a wrapper: its ``__dict__``, or (``__dict__``, slots)."""
        parts = []
        for one in items(state) or [state]:
            for name, value in plain_dict(one).items():
                found = self._try_inner(value, (*path, Special(f".{name}")), depth)
                if found is not None:
                    parts.append(found)
                elif type(bare(value)) is Made:
                    self.hidden = True
        if not parts:  # whatever it holds lies deeper
            self.hidden = True
        return tuple(parts)

    def _look_into(self, state: Value) -> None:
        """Remember that there may be tensors in attributes, when there is more than plain values."""
        for one in items(state) or [state]:
            if any(type(bare(value)) in (Made, Tuple, PersistentId) for value in plain_dict(one).values()):
                self.hidden = True

    def wrapper(self, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
        """``(class, dtype, size, stride, offset, layout, device, requires_grad)``: no storage of its own."""
        _expect(arguments, 8, 8)
        element = _insist_dtype(arguments[1])
        shape, stride, offset, _ = view_of(arguments[2], arguments[3], arguments[4], element)
        return Tensor(
            path,
            element,
            shape,
            stride,
            None,
            offset,
            device_name(arguments[6]),
            arguments[7] is True,
            rebuild=kind,
            layout=layout_name(arguments[5]) or "strided",
            subclass=full_name(arguments[0]) or "",
        )

    def meta(self, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
        """``(dtype, size, stride, requires_grad)``: shape without values."""
        _expect(arguments, 4, 4)
        element = _insist_dtype(arguments[0])
        shape, stride, _, _ = view_of(arguments[1], arguments[2], 0, element)
        return Tensor(path, element, shape, stride, None, 0, "meta", arguments[3] is True, rebuild=kind)

    def from_cpu(self, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
        """``(CPU tensor, dtype, device, requires_grad)``: the CPU tensor, which torch moves to the device."""
        _expect(arguments, 4, 4)
        data = self._inner(arguments[0], path, "", depth)
        if data.rebuild not in PLAIN_MAKERS or data.dtype != _insist_dtype(arguments[1]):
            raise NotOurs
        if arguments[3] is True and data.parts and data.storage is None:  # a sparse tensor has no place to say so
            raise NotOurs
        return replace(data, device=device_name(arguments[2]), requires_grad=arguments[3] is True, rebuild=kind)

    def from_numpy(self, kind: str, arguments: list[Value], path: KeyPath, depth: int) -> Tensor:
        """``(array, dtype, device, requires_grad)``: the values lie in the pickle, as the array's bytes."""
        _expect(arguments, 4, 4)
        element, array = _insist_dtype(arguments[1]), array_of(arguments[0])
        if array is None:
            raise NotOurs
        shape = shape_of(array.shape, element)
        stride = contiguous_stride(shape[::-1])[::-1] if array.fortran else contiguous_stride(shape)
        device, grad = device_name(arguments[2]), arguments[3] is True
        values = self._values(array, element, shape)
        return Tensor(path, element, shape, stride, None, 0, device, grad, rebuild=kind, values=values)

    def _values(self, array: Array, element: DType, shape: tuple[int, ...]) -> memoryview | None:
        """The elements of an array: the same object each time, so that tensors of one array are known by it."""
        name = id(array.node), element.name
        if name not in self._arrays:
            found = elements(array, element, shape)
            self._arrays[name] = None if found is None else memoryview(found)  # Python has one b"" for all
        return self._arrays[name]


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


def _expect(arguments: list[Value], least: int, most: int) -> None:
    if not least <= len(arguments) <= most:
        raise NotOurs


def _insist_dtype(value: Value) -> DType:
    found = dtype(value)
    if found is None:
        raise NotOurs
    return found


_BYTES = BY_NAME["uint8"]

_SPARSE_PARTS = {
    "sparse_coo": ("indices", "values"),
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
    "sparse_bsr": ("crow_indices", "col_indices", "values"),
    "sparse_bsc": ("ccol_indices", "row_indices", "values"),
}

_Rebuild = Callable[[TensorReader, str, list[Value], KeyPath, int], Tensor]

# the functions of torch 2.13 and before that rebuild tensors, and the classes whose call with a tensor gives one
_REBUILD: dict[str, _Rebuild] = {
    "torch._utils._rebuild_tensor": TensorReader.tensor_v2,
    "torch._utils._rebuild_tensor_v2": TensorReader.tensor_v2,
    "torch._utils._rebuild_tensor_v3": TensorReader.tensor_v3,
    "torch._utils._rebuild_parameter": TensorReader.parameter,
    "torch._utils._rebuild_parameter_with_state": TensorReader.parameter,
    "torch.nn.parameter.Parameter": TensorReader.parameter,
    "torch._utils._rebuild_sparse_tensor": TensorReader.sparse,
    "torch._utils._rebuild_nested_tensor": TensorReader.nested,
    "torch.nested._internal.nested_tensor._rebuild_njt": TensorReader.jagged,
    "torch._utils._rebuild_qtensor": TensorReader.quantized,
    "torch._tensor._rebuild_from_type": TensorReader.of_type,
    "torch._tensor._rebuild_from_type_v2": TensorReader.of_type,
    "torch._utils._rebuild_wrapper_subclass": TensorReader.wrapper,
    "torch._utils._rebuild_meta_tensor_no_storage": TensorReader.meta,
    FROM_CPU: TensorReader.from_cpu,
    **dict.fromkeys(sorted(FROM_ARRAY), TensorReader.from_numpy),
}
