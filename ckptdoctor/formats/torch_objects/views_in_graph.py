"""Where the graph makes views of storages: the arguments of every tensor, so that they can be changed."""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.checkpoint import DType
from ckptdoctor.checkpoint.dtypes import BY_NAME
from ckptdoctor.formats.torch_objects.storages import Claim, claim_of
from ckptdoctor.formats.torch_objects.values import CALLS, bare, call, dtype, full_name, items
from ckptdoctor.formats.torch_objects.views import OddTensor, view_of
from ckptdoctor.noun import field, noun
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, Node, PersistentId, Tuple, Value

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


def users_of_storages(nodes: Iterable[Node]) -> dict[str, Users]:
    """Every storage key with its users, in the order of first use; ``nodes`` are all of the graph, in stream order."""
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
    """The view that a rebuilding function of this name makes of these arguments; None when it makes none."""
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
    """A tuple of integers; the encoder finds the opcode for its length."""
    return Tuple(op.TUPLE1 if values else op.EMPTY_TUPLE, list(values))
