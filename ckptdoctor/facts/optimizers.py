"""Reads what training left next to the weights: optimizers with what they keep of each parameter, counters, scalers.

Optimizers are as ``Optimizer.state_dict()`` left them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Part, Role, Tensor
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.tree import mapping_at
from ckptdoctor.facts import names
from ckptdoctor.facts.weight_sets import Candidate
from ckptdoctor.noun import noun

# states that have the shape of their parameter in every optimizer of torch and in those that copy its names:
# Adam, SGD, RMSprop, Adadelta, Adamax, Adagrad, Rprop, ASGD
MOMENTS = frozenset(
    ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "grad_avg", "acc_delta", "ax")
) | {"exp_inf", "sum", "prev"}
_FLAT = "prev_flat_grad"
_READ = 16  # optimizers of one file that are looked at


@noun
class Slot:
    """One parameter as its optimizer saved it. ``shape`` is what its moments tell, ``name`` what ``param_names`` do.

    ``number`` is what it is called in the state; ``flat``: the state is that of all parameters at once (LBFGS).
    """

    name: str | None
    has_state: bool
    shape: tuple[int, ...] | None
    number: int = -1
    flat: bool = False


@noun(eq=False, slots=False)
class SavedOptimizer:
    """The state of an optimizer at ``path``: its parameter groups in order, each with its parameters in order.

    ``options`` is everything else that each group holds.
    """

    path: KeyPath
    groups: tuple[tuple[Slot, ...], ...]
    options: tuple[tuple[tuple[Part, Node], ...], ...] = ()

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The parameters of all groups in order: torch numbers them like this."""
        return tuple([slot for group in self.groups for slot in group])

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """What the parameters are called, where the file says it of each."""
        found = [slot.name for slot in self.slots if slot.name is not None]
        return tuple(found) if found and len(found) == len(self.slots) else None


@cached_by_identity
def saved_optimizers(checkpoint: Checkpoint) -> tuple[SavedOptimizer, ...]:
    """Return the optimizers of a file whose parameters are numbered, as torch does.

    Others (FSDP's, by name) are left out.
    """
    paths = [each.path for each in checkpoint.state_dicts if each.role is Role.OPTIMIZER]
    read = [_read(path, mapping_at(checkpoint.tree, path)) for path in islice(paths, _READ)]
    return tuple([each for each in read if each is not None and each.slots])


def _read(path: KeyPath, node: Mapping | None) -> SavedOptimizer | None:
    parts = dict(node.entries) if node is not None else {}
    groups, state = parts.get("param_groups"), parts.get("state")
    if not isinstance(groups, Items) or not isinstance(state, Mapping):
        return None
    states: dict[object, Node] = dict(state.entries)
    read = []
    for group in groups.items:
        numbers = _numbers(group)
        if numbers is None:
            return None
        labels = _labels(group, len(numbers))
        slots = [_slot(label, number, states.get(number)) for number, label in zip(numbers, labels, strict=True)]
        read.append(tuple(slots))
    return SavedOptimizer(path, tuple(read), tuple(map(_options, groups.items)))


def _options(group: Node) -> tuple[tuple[Part, Node], ...]:
    entries = group.entries if isinstance(group, Mapping) else ()
    return tuple([(part, value) for part, value in entries if part not in ("params", "param_names")])


def _numbers(group: Node) -> list[int] | None:
    params = dict(group.entries).get("params") if isinstance(group, Mapping) else None
    if not isinstance(params, Items) or not all(type(each) is int for each in params.items):
        return None
    return [each for each in params.items if isinstance(each, int)]


def _labels(group: Node, number: int) -> Sequence[str | None]:
    found = dict(group.entries).get("param_names") if isinstance(group, Mapping) else None
    labels = [names.bare(each) for each in found.items if isinstance(each, str)] if isinstance(found, Items) else []
    return labels if len(labels) == number else [None] * number


def _slot(name: str | None, number: int, state: Node) -> Slot:
    if not isinstance(state, Mapping) or not state.entries:
        return Slot(name, False, None, number)
    tensors = {
        key: each
        for key, each in state.entries
        if isinstance(key, str) and isinstance(each, Tensor) and each.subclass is None
    }
    shapes = {each.shape for key, each in tensors.items() if key in MOMENTS}
    shapes.update(_factored({key: each.shape for key, each in tensors.items()}))
    return Slot(name, True, shapes.pop() if len(shapes) == 1 else None, number, _FLAT in dict(state.entries))


def _factored(shapes: dict[str, tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """Yield the shapes that the factors of second moments tell.

    They are those of torch's Adafactor, and of that of transformers.
    """
    row, column = shapes.get("row_var"), shapes.get("col_var")
    if row and column and row[-1] == 1 and len(row) == len(column) > 1:
        yield (*row[:-1], column[-1])
    row, column = shapes.get("exp_avg_sq_row"), shapes.get("exp_avg_sq_col")
    if row and column and len(row) == len(column):
        yield (*row, column[-1])
    if "variance" in shapes:
        yield shapes["variance"]


# ---- whose moments these are: the key of each parameter, where names or shapes leave no choice


def clashes(slots: Iterable[Slot], wanted: Iterable[Candidate]) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Return the number, shape of the state, and shape of the parameter, wherever the two do not agree one by one."""
    return [
        (number, slot.shape, each.shape)
        for number, (slot, each) in enumerate(zip(slots, wanted, strict=False))
        if slot.shape is not None and slot.shape != each.shape
    ]


def in_order(slots: Iterable[Slot], wanted: Iterable[Candidate]) -> bool:
    """Return whether the parameters, some of them left out, have these shapes one after another.

    Unknown shapes fit any.
    """
    rest = iter(wanted)
    return all(any(slot.shape is None or slot.shape == each.shape for each in rest) for slot in slots)


LIGHTNING = "pytorch-lightning_version"
_SCALER = frozenset({"scale", "growth_factor", "backoff_factor", "growth_interval"})
_BEYOND = 10**18  # what no counter reaches
_NEAR = 256  # entries of a dict that are looked at for what lies in it


def as_number(node: Node) -> float | None:
    """Return a plain number, or None for anything else, a tensor among them, and for integers beyond all measure."""
    if isinstance(node, float):
        return node
    return float(node) if isinstance(node, int) and is_count(node) else None


def is_count(node: Node) -> bool:
    """Return whether it is an integer that can be a counter."""
    return type(node) is int and abs(node) < _BEYOND


@cached_by_identity
def top(checkpoint: Checkpoint) -> dict[str, Node]:
    """Return the entries at the top of the file; none where there are as many as tensors have."""
    tree = checkpoint.tree
    if not isinstance(tree, Mapping) or len(tree.entries) > _NEAR:
        return {}
    return {part: node for part, node in tree.entries if isinstance(part, str)}


def scalers(checkpoint: Checkpoint) -> Iterator[tuple[KeyPath, float]]:
    """Yield the states of ``GradScaler`` near the top of the file, each with its scale."""
    for name, node in top(checkpoint).items():
        below: list[tuple[KeyPath, Node]] = [((name,), node)]
        if isinstance(node, Mapping) and len(node.entries) <= _NEAR:
            below += [((name, part), child) for part, child in node.entries]
        for path, each in below:
            if isinstance(each, Mapping) and len(each.entries) <= _NEAR:
                parts = dict(each.entries)
                scale = as_number(parts.get("scale"))
                if parts.keys() >= _SCALER and scale is not None:
                    yield path, scale
