"""Tensors are made out of the calls that rebuild them when torch loads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ckptdoctor.checkpoint import DType, KeyPath, Note, NoteKind, Part, Special, Storage, Tensor, show_path
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.formats.torch.read.numpy_arrays import Array, elements
from ckptdoctor.formats.torch.read.objects import holds
from ckptdoctor.formats.torch.read.rebuild import CLASSES, MAX_WRAPPING, REACHING, REBUILD, require
from ckptdoctor.formats.torch.read.storages import Claim, Known, Registry
from ckptdoctor.formats.torch.read.tensor_state import NOTHING, ReplacedError, built, grad_of, is_changed
from ckptdoctor.formats.torch.read.values import CALLS, NotOurs, bare, call, full_name, items, plain_dict
from ckptdoctor.formats.torch.read.views import OddTensor, usual_reach, view_of
from ckptdoctor.noun import maker
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import FoldedTensor, Form, Global, Made, PersistentId, PickleNode, Tuple, Value

# tensors inside tensors that are read at the least; shared ones could multiply without end
INNER_READS = 100_000

_BYTES = BY_NAME["uint8"]
_V2 = "torch._utils._rebuild_tensor_v2"

_tensor = maker(Tensor)

# stands for the place of a tensor that no part of the tree is
_UNSEEN: KeyPath = (Special("a tensor that the tree does not show"),)


class TensorReader:
    """Reads the tensors of one pickle. ``notes`` gathers what is wrong with them, by key path.

    ``hidden`` tells whether some tensors are where the nouns have no place for them: in attributes of Parameters.
    """

    def __init__(self, registry: Registry, member: str, inner_budget: int = INNER_READS) -> None:
        self._registry = registry
        self._member = member
        self._kinds: dict[int, str | None] = {}  # id of a Global node → name of the rebuilding function
        # of tensors of a form: claim of the storage and its bytes, dtype, bits, shape, stride and offset
        self._plain: dict[Form, tuple[Claim, int, DType, int, tuple[int, ...], tuple[int, ...], int]] = {}
        self._reaches: dict[Form, int] = {}  # elements that a storage needs for tensors of a form; -1: look closer
        self._inner_left = inner_budget
        self._arrays: dict[tuple[int, str], memoryview | None] = {}  # by id of the node, and dtype
        self._met: set[int] = set()  # ids of calls that state belongs to
        self.attributes: list[tuple[Value, KeyPath, int]] = []  # what is set on tensors and was not looked at
        self._refused: set[tuple[NoteKind, KeyPath]] = set()
        self.notes: list[Note] = []
        self.hidden = False

    def usual(self, values: list[Value], steps: Sequence[Part], begin: int, path: KeyPath) -> list[Tensor]:
        """Return the tensors of the values from ``begin`` on, up to one at which ``read`` has to look closer.

        They are folded calls of which one like it was read: nearly all that a checkpoint holds.
        """
        made: list[Tensor] = []
        plain, claimed = self._plain, self._registry.claimed
        for index in range(begin, len(values)):
            value = values[index]
            folded = value.folded if type(value) is Made and value.steps is None else None
            known = None if folded is None else plain.get(folded.form)
            if folded is None or known is None:
                break
            like, nbytes, element, enough, shape, stride, offset = known
            storage = claimed(folded.key, like, nbytes)
            if storage is None or enough > storage.nbytes * 8:
                break
            place = *path, steps[index]
            made.append(_tensor(place, element, shape, stride, storage, offset, storage.device, False, False, _V2))
        return made

    def read(self, node: Made, path: KeyPath, depth: int = 0) -> Tensor | None:
        """Return the tensor that this object is, or None when it is none, or cannot be one (a note then says why)."""
        folded = node.folded
        callee = node.items[0] if folded is None else folded.form.callee
        kind = self._kinds.get(id(callee), "") if type(callee) is Global else self._kind(callee)
        if kind == "":
            kind = self._kinds[id(callee)] = self._kind(callee)
        if kind is None or depth > MAX_WRAPPING:
            return None
        if node.steps is not None or kind in REACHING:
            self._met.add(id(node))
        try:
            if kind == _V2 and node.steps is None:
                plain = None if folded is None else self._folded(kind, folded, path)
                if plain is not None:
                    return plain
                arguments = node.items[1]
                if type(arguments) is Tuple and len(arguments.items) == 6 and node.op == op.REDUCE:
                    return self.strided(kind, arguments.items, path)
            return self._called(kind, node, path, depth)
        except OddTensor as error:
            self._refuse(path, NoteKind.TENSOR_ODD, f"cannot be a tensor: {error}; torch rejects the file")
        except ReplacedError as error:
            told = f"is not what torch.load returns: {error}, which replaces its values"
            self._refuse(path, NoteKind.TENSOR_STATE, told)
        except NotOurs:
            pass
        return None

    def _called(self, kind: str, node: Made, path: KeyPath, depth: int) -> Tensor:
        _, arguments, keywords = call(node)
        if node.op in (op.NEWOBJ, op.NEWOBJ_EX) and kind not in CLASSES:
            raise OddTensor("it is made by a function that is called like a class")
        if keywords is not None and holds(keywords):
            raise OddTensor("it is made with keyword arguments")
        try:
            made = REBUILD[kind](self, kind, arguments, path, depth)
        except NotOurs:
            if is_changed(node):
                raise ReplacedError("it is given a state") from None
            raise
        if node.steps is not None:
            made = built(self, made, node, path, depth)
        if made.values is NOTHING:
            raise NotOurs
        return made

    def _refuse(self, path: KeyPath, kind: NoteKind, message: str) -> None:
        """Note what keeps something from being a tensor: once, though its parts are read again on their own."""
        if not any((kind, path[:length]) in self._refused for length in range(len(path) + 1)):
            self._refused.add((kind, path))
            self.notes.append(
                Note(kind, f"{show_path(path)} {message}", self._member, keys=() if path is _UNSEEN else (path,))
            )

    def read_attributes(self) -> None:
        """Look at what was set on tensors and is of no matter to them: where it is a tensor, torch makes it, too."""
        for value, path, depth in self.attributes:
            self.try_inner(value, path, depth)

    def read_rest(self, nodes: Iterable[PickleNode]) -> None:
        """Look at tensors among ``nodes`` that were not met yet: what state does to them may reach others."""
        for node in nodes:
            if type(node) is not Made or node.op not in CALLS or id(node) in self._met:
                continue
            if node.steps is not None or full_name(node.items[0]) in REACHING:
                self.read(node, _UNSEEN)

    def refuse_reference(self, node: PersistentId, path: KeyPath) -> None:
        """Note a persistent id that names nothing which torch would know."""
        if not self._registry.names_modules or full_name(node) is None:
            message = "is a reference that torch does not know; torch rejects the file"
            self._refuse(path, NoteKind.TENSOR_ODD, message)

    def raw_storage(self, node: PersistentId, path: KeyPath) -> Tensor | None:
        """Return a storage saved on its own, as the flat tensor of its bytes or elements."""
        known = self._registry.get(node)
        if known is None:
            return None
        kind = known.claim.dtype if known.claim.dtype is not None else _BYTES
        size = (known.claim.numel if known.length is None else known.length,)
        name, device = known.claim.class_name, known.storage.device
        return Tensor(path, kind, size, (1,), known.storage, known.shift, device, rebuild=name)

    @staticmethod
    def _kind(callee: Value) -> str | None:
        name = full_name(callee)
        return name if name in REBUILD else None

    def strided(self, kind: str, arguments: list[Value], path: KeyPath, own_dtype: DType | None = None) -> Tensor:
        """Return a view from (storage, offset, size, stride[, requires_grad, …])."""
        known, element = self._storage(arguments[0], own_dtype)
        shape, stride, offset, reach = view_of(arguments[2], arguments[3], arguments[1], element)
        storage = known.storage
        if known.length is not None and reach > known.length:
            raise OddTensor(f"it reaches to element {reach:,} of a view of {known.length:,}")
        if known.shift:
            offset, reach = offset + known.shift, reach + known.shift if reach else 0
        if reach * element.bits > storage.nbytes * 8:
            self._out_of_bounds(path, reach, storage, element)
        grad = grad_of(arguments[4], element) if len(arguments) > 4 else False
        return Tensor(path, element, shape, stride, storage, offset, storage.device, grad, rebuild=kind)

    def _folded(self, kind: str, folded: FoldedTensor, path: KeyPath) -> Tensor | None:
        """Return the same from the numbers of a folded call, or None where it takes a closer look."""
        claimed = self._registry.folded(folded)
        if claimed is None:
            return None
        storage, like = claimed
        element, form = like.dtype, folded.form
        if element is None:
            return None
        reach = self._reaches.get(form)
        if reach is None:
            reach = usual_reach(form.shape, form.stride, form.offset, element)
            reach = self._reaches[form] = -1 if reach is None else reach
        if reach < 0:
            return None
        if reach * element.bits > storage.nbytes * 8:
            self._out_of_bounds(path, reach, storage, element)
        grad = form.requires_grad
        if grad:
            grad_of(True, element)
        elif kind == _V2:
            seen = element, reach * element.bits, form.shape, form.stride, form.offset
            self._plain[form] = like, like.nbytes, *seen
        return Tensor(path, element, form.shape, form.stride, storage, form.offset, storage.device, grad, rebuild=kind)

    def _storage(self, reference: Value, own_dtype: DType | None) -> tuple[Known, DType]:
        known = self._registry.get(reference, own_dtype)
        if known is None:
            raise OddTensor("it does not name a storage that torch knows")
        element = own_dtype if own_dtype is not None else known.claim.dtype
        return known, _BYTES if element is None else element

    def _out_of_bounds(self, path: KeyPath, reach: int, storage: Storage, element: DType) -> None:
        there = storage.nbytes * 8 // element.bits
        message = (
            f"{show_path(path)} reaches to element {reach:,} of storage {storage.key}, which has {there:,}; "
            "torch rejects the file"
        )
        self.notes.append(Note(NoteKind.TENSOR_OUT_OF_BOUNDS, message, self._member))

    def inner(self, value: Value, path: KeyPath, step: str, depth: int) -> Tensor:
        """Return a tensor among the arguments of another one. Raises NotOurs when there is none."""
        return require(self.try_inner(value, (*path, Special(step)) if step else path, depth))

    def try_inner(self, value: Value, path: KeyPath, depth: int) -> Tensor | None:
        """Return a tensor inside another one, or None where there is none, and after too many."""
        value = bare(value)
        if type(value) is not Made or value.op not in CALLS:
            return None
        self._inner_left -= 1
        if self._inner_left < 0:
            self.hidden = True
            return None
        return self.read(value, path, depth + 1)

    def look_into(self, state: Value) -> None:
        """Remember that there may be tensors in attributes, when there is more than plain values."""
        for one in items(state) or [state]:
            if any(type(bare(value)) in (Made, Tuple, PersistentId) for value in plain_dict(one).values()):
                self.hidden = True

    def values(self, array: Array, element: DType, shape: tuple[int, ...]) -> memoryview | None:
        """Return the elements of an array: the same object each time, so that tensors of one array are known by it."""
        name = id(array.node), element.name
        if name not in self._arrays:
            found = elements(array, element, shape)
            self._arrays[name] = None if found is None else memoryview(found)  # Python has one b"" for all
        return self._arrays[name]
