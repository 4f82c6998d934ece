"""Loads the contents of a checkpoint as plain Python, with their tensors on the CPU: ``ckptdoctor.load``."""

from __future__ import annotations

import os
import warnings
from collections import OrderedDict
from typing import Any, Literal

from ckptdoctor.checkpoint import (
    ROOT,
    Checkpoint,
    Cycle,
    Elided,
    KeyPath,
    Mapping,
    Named,
    Node,
    Opaque,
    Part,
    Sequence,
    Source,
    Special,
    Tensor,
    at,
    show_path,
)
from ckptdoctor.checkpoint.checkpoint import told_of, unread_files
from ckptdoctor.checkpoint.dtypes import BY_NAME, NUMPY_BUFFERS, NUMPY_MAKERS, NUMPY_SCALARS
from ckptdoctor.checkpoint.tensor import contiguous_stride, is_contiguous
from ckptdoctor.crash import asking_for_torch
from ckptdoctor.errors import DamagedError, UsageError
from ckptdoctor.facts.numpy_values import NotPlainError, array_of, number
from ckptdoctor.facts.reader_notes import require_every_file, require_own_values
from ckptdoctor.formats import opened, read
from ckptdoctor.loading.inert import Inert
from ckptdoctor.loading.soundness import faults_of, require_sound
from ckptdoctor.loading.storages import StorageReader
from ckptdoctor.loading.tensors import TensorMaker
from ckptdoctor.noun import replace
from ckptdoctor.wording import beyond

_SIZE_BITS = 63
_COMPLEX = frozenset(("builtins.complex", "__builtin__.complex"))
# elements that NumPy has on every machine; a file may name any code
_ARRAYS = frozenset(("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"))


@asking_for_torch()
def load(path: str | os.PathLike[str], *, strict: bool = True, framework: Literal["pt", "np"] = "pt") -> Any:
    """Return the contents of the checkpoint at ``path``: dicts, lists and plain values as saved, tensors on the CPU.

    ``framework`` is what makes the tensors, as ``safetensors.safe_open`` has it: "pt" is torch, and "np" is NumPy, for
    which no torch is needed. bfloat16 and float8, which NumPy lacks, are then dtypes of ml_dtypes, as in JAX.
    What only torch has (a dtype or device as a value, tensors that are sparse, quantized, on the meta device or of a
    dtype that neither has) comes from NumPy as ``Inert``, with its parts as arrays.

    Device tags do not matter, strides and shared storages are kept, and stored records are mapped rather than read:
    their checksums are not compared, which is what ``check(path, deep=True)`` does.
    Objects other than plain values and tensors come back as ``Inert`` records; no code of theirs runs.

    Raises UnreadableError, NotACheckpointError or DamagedError, with one sentence that says where (the key, and
    ``offset``, the byte, where it is known): for a tensor that cannot be made as it was saved, for a safetensors file
    that safetensors refuses (holes, overlaps, trailing bytes, a broken entry), and for a folder of which a file is
    missing or damaged. With ``strict=False`` what can be given is given, with a UserWarning that says what is wrong:
    a damaged tensor or value is an ``Inert`` record whose state holds the ``reason``, and files that cannot be read
    are left out.

    Raises MissingPackageError where there are tensors and torch (or ml_dtypes, for dtypes that NumPy lacks) is not
    installed, and UsageError for another framework.
    """
    require_framework(framework)
    with opened(path) as (source, container):
        checkpoint = read(source, container)
        require_own_values(checkpoint)
        if strict:
            require_every_file(checkpoint)
            require_sound(checkpoint, source)
        builder = _Builder(_maker(framework, StorageReader(checkpoint, source)), strict=strict)
        if strict:
            return builder.build(checkpoint.tree)
        contents = builder.build(checkpoint.tree)
        faults = [*_unread(checkpoint), *[note.message for note in faults_of(checkpoint, source)], *builder.damaged]
        if faults:
            more = beyond(len(faults) - 1, "fault", before=", and ")
            warnings.warn(f"{checkpoint.path} is damaged: {faults[0].rstrip('.')}{more}.", stacklevel=3)
        return contents


def require_framework(framework: str) -> None:
    """Raise UsageError for one that makes no tensors here."""
    if framework not in ("pt", "np"):
        raise UsageError(f'framework={framework!r} is neither "pt" (torch) nor "np" (NumPy).')


def load_part(checkpoint: Checkpoint, source: Source, place: KeyPath, framework: Literal["pt", "np"] = "pt") -> Any:
    """Return what is at one place of a checkpoint that was read from ``source``, as ``load`` does with ``strict``."""
    require_own_values(checkpoint)
    require_sound(checkpoint, source, place)
    builder = _Builder(_maker(framework, StorageReader(checkpoint, source)), strict=True)
    return builder.build(at(checkpoint.tree, place), place)


def _maker(framework: str, storages: StorageReader) -> TensorMaker:
    if framework == "np":
        from ckptdoctor.loading.numpy_arrays import NumpyArrays

        return NumpyArrays(storages)
    from ckptdoctor.loading.torch_tensors import TorchTensors

    return TorchTensors(storages)


def _unread(checkpoint: Checkpoint) -> list[str]:
    """Return the files that were not read, as one fault."""
    unread = unread_files(checkpoint)
    return [told_of(checkpoint, unread)] if unread else []


class _Builder:
    """Builds Python objects from the tree, top down and without recursion, so that cycles and depth cause no trouble.

    What is damaged raises DamagedError; if not ``strict``, it becomes ``Inert``, and ``damaged`` says why.
    """

    def __init__(self, tensors: TensorMaker, *, strict: bool) -> None:
        self._tensors = tensors
        self._strict = strict
        self.damaged: list[str] = []
        self._by_path: dict[KeyPath, Any] = {}
        self._todo: list[_Job] = []
        self._tuples: list[tuple[list[Any], _Job, str]] = []

    def build(self, root: Node, path: KeyPath = ROOT) -> Any:
        holder: list[Any] = [None]
        self._todo.append(_Job(root, path, _Place(holder, 0)))
        while self._todo:
            self._place(self._todo.pop())
        # tuples and sets are immutable, so they are closed last, innermost first
        for items, job, kind in reversed(self._tuples):
            try:
                job.place.set(self._closed(kind, items, job.path))
            except DamagedError as error:
                job.place.set(self._fault(error, "torch.Size", {"items": items}))
        return holder[0]

    def _place(self, job: _Job) -> None:
        node = job.node
        if isinstance(node, Tensor):
            job.place.set(self._tensor(node))
        elif isinstance(node, Mapping):
            self._mapping(node, job)
        elif isinstance(node, Sequence):
            self._sequence(node, job)
        elif isinstance(node, Opaque):
            self._opaque(node, job)
        elif isinstance(node, Cycle):
            job.place.set(self._by_path.get(node.path))
        elif isinstance(node, Named):
            job.place.set(self._named(node.name))
        elif isinstance(node, Elided):
            error = DamagedError(f"{show_path(job.path)} cannot be loaded: it {_predicate(node.reason)}")
            job.place.set(self._fault(error, "elided", {"reason": node.reason}))
        else:
            job.place.set(node)

    def _tensor(self, node: Tensor) -> Any:
        try:
            return self._tensors.make(_in_pairs(node))
        except DamagedError as error:
            state = {"dtype": node.dtype.name, "shape": node.shape, "reason": error.message}
            return self._fault(error, node.subclass or node.rebuild, state)

    def _fault(self, error: DamagedError, kind: str, state: dict[str, Any]) -> Inert:
        """Return a placeholder for something damaged, where the caller asks for one."""
        if self._strict:
            raise error
        self.damaged.append(error.message)
        return Inert(kind, state={"reason": error.message, **state})

    def _mapping(self, node: Mapping, job: _Job) -> None:
        made: dict[Any, Any] = OrderedDict() if node.kind == "collections.OrderedDict" else {}
        job.place.set(made)
        self._by_path[job.path] = made
        self._fill(made, node.entries, job.path)
        if node.attributes is not None and isinstance(made, OrderedDict):
            for part, child in node.attributes.entries:
                place = _Place(made.__dict__, str(part))  # as BUILD does: a method's name replaces no method
                self._todo.append(_Job(child, (*job.path, Special(f".{part}")), place))

    def _sequence(self, node: Sequence, job: _Job) -> None:
        items: list[Any] = [None] * len(node.items)
        job.place.set(items)
        self._by_path[job.path] = items
        if node.kind != "list":
            self._tuples.append((items, job, node.kind))
        self._list(items, node.items, job.path)

    def _opaque(self, node: Opaque, job: _Job) -> None:
        try:
            simple = self._simple(node, job.path)
        except DamagedError as error:
            simple = self._fault(error, node.class_name, {"arguments": list(node.arguments)})
        if simple is not None:
            job.place.set(simple)
            return
        made = Inert(node.class_name, arguments=[None] * len(node.arguments), items=[None] * len(node.items))
        job.place.set(made)
        self._by_path[job.path] = made
        for index, child in enumerate(node.arguments):
            self._todo.append(_Job(child, (*job.path, Special(f"({index})")), _Place(made.arguments, index)))
        if isinstance(node.state, Mapping):
            # an object's attributes lie directly under its path, so the state dict gets no step of its own
            self._mapping(node.state, _Job(node.state, job.path, _AttributePlace(made, "state")))
            self._by_path[job.path] = made
        else:
            self._todo.append(_Job(node.state, (*job.path, Special(".state")), _AttributePlace(made, "state")))
        self._list(made.items, node.items, job.path)
        self._fill(made.entries, node.entries, job.path)

    def _fill(self, made: dict[Any, Any], entries: tuple[tuple[Part, Node], ...], path: KeyPath) -> None:
        texts = {part for part, _ in entries if isinstance(part, str)}
        for part, child in entries:
            key: Any = part.text if isinstance(part, Special) else part
            if isinstance(part, Special) and (key in texts or key in made):
                key = part  # a key that is no text, beside another that reads the same
            made[key] = None  # the order of the file
            self._todo.append(_Job(child, (*path, part), _Place(made, key)))

    def _list(self, made: list[Any], items: tuple[Node, ...], path: KeyPath) -> None:
        for index, child in enumerate(items):
            self._todo.append(_Job(child, (*path, index), _Place(made, index)))

    def _closed(self, kind: str, items: list[Any], path: KeyPath) -> Any:
        """Return the immutable or hashed kind of sequence, or the list itself where its items cannot be hashed.

        Raises DamagedError for sizes that are not numbers.
        """
        if kind == "tuple":
            return tuple(items)
        if kind == "torch.Size":
            try:
                made = self._tensors.size(items)
            except (TypeError, ValueError, RuntimeError) as error:
                raise DamagedError(f"{show_path(path)} cannot be a torch.Size: {str(error).splitlines()[0]}") from error
            if any(size.bit_length() > _SIZE_BITS for size in made):  # torch makes it, and cannot even print it
                raise DamagedError(f"{show_path(path)} cannot be a torch.Size: a number in it is too large")
            return made
        if kind in ("set", "frozenset") and all(
            isinstance(each, (str, bytes, int, float, type(None))) for each in items
        ):
            return set(items) if kind == "set" else frozenset(items)
        return items

    def _named(self, name: str) -> Any:
        """Return a torch dtype for its name, where it can be had; any other name as an inert record."""
        module, _, last = name.rpartition(".")
        return self._tensors.dtype(last) if module == "torch" and last in BY_NAME else Inert(name)

    def _simple(self, node: Opaque, path: KeyPath) -> Any:
        """Return a torch.device, a complex number, or a number or array of NumPy: plain values in all but their class.

        None for everything else.

        Raises DamagedError for a device that torch does not know.
        """
        if node.class_name in NUMPY_SCALARS or node.class_name in NUMPY_MAKERS or node.class_name in NUMPY_BUFFERS:
            return _of_numpy(node)
        if node.class_name in _COMPLEX:
            return _complex(node)
        if node.class_name != "torch.device" or not node.arguments:
            return None
        kind, *rest = node.arguments
        index = [number for number in rest if isinstance(number, int)]
        if not isinstance(kind, str) or len(index) < len(rest):
            return None
        try:
            # str refuses integers of more than 4,300 digits; no device has a number of 64 bits
            return self._tensors.device(":".join([kind, *[str(max(-1, min(number, 1 << 64))) for number in index]]))
        except RuntimeError as error:
            raise DamagedError(f"{show_path(path)} cannot be a torch.device: {str(error).splitlines()[0]}") from error


def _complex(node: Opaque) -> complex | None:
    """Return a complex number as Python pickles one, or None for anything else that is called so."""
    plain = len(node.arguments) == 2 and all(type(each) in (int, float) for each in node.arguments)
    if not plain or node.items or node.entries or node.state is not None:
        return None
    real, imaginary = node.arguments
    assert isinstance(real, (int, float)) and isinstance(imaginary, (int, float))
    try:
        return complex(real, imaginary)
    except OverflowError:  # an integer that no float has
        return None


def _of_numpy(node: Opaque) -> Any:
    """Return a number in Python, or an array, or None for what has no such form (times, records, objects)."""
    if node.class_name in NUMPY_SCALARS:
        try:
            made = number(node)
        except NotPlainError:
            return None
        return made if isinstance(made, (bool, int, float, complex)) else None
    array = array_of(node)
    if array is None or not isinstance(array.contents, bytes) or array.element.code not in _ARRAYS:
        return None
    import numpy as np

    dtype = f"{array.element.order if array.element.order in '<>' else '|'}{array.element.code}"
    made = np.frombuffer(bytearray(array.contents), dtype)
    made = made.astype(made.dtype.newbyteorder("="), copy=False)  # as numpy.ndarray.__setstate__ has it
    try:
        return made.reshape(array.shape, order="F" if array.fortran else "C")
    except ValueError:  # more dimensions, or an empty array of larger ones, than NumPy has
        return None


def _in_pairs(tensor: Tensor) -> Tensor:
    """Return a tensor of 4-bit floats as torch has them, and as safetensors gives them: two in one element."""
    if tensor.dtype.name != "float4_e2m1fn" or not tensor.shape or tensor.shape[-1] % 2 or not is_contiguous(tensor):
        return tensor
    shape = (*tensor.shape[:-1], tensor.shape[-1] // 2)
    return replace(tensor, dtype=BY_NAME["float4_e2m1fn_x2"], shape=shape, stride=contiguous_stride(shape))


class _Place:
    """A slot of a list or dict that waits for its value."""

    __slots__ = ("holder", "slot")

    def __init__(self, holder: Any, slot: Any) -> None:
        self.holder = holder
        self.slot = slot

    def set(self, value: Any) -> None:
        self.holder[self.slot] = value


class _AttributePlace(_Place):
    """The state of an ``Inert`` that waits for its value."""

    __slots__ = ()

    def set(self, value: Any) -> None:
        setattr(self.holder, self.slot, value)


class _Job:
    """A node still to be built, and where it goes."""

    __slots__ = ("node", "path", "place")

    def __init__(self, node: Node, path: KeyPath, place: _Place) -> None:
        self.node = node
        self.path = path
        self.place = place


def _predicate(reason: str) -> str:
    """Return why something was left out of the tree, behind "it": a budget's reason says what there is."""
    return reason.removeprefix("it ") if reason.startswith(("it ", "has ", "is ")) else f"holds {reason}"
