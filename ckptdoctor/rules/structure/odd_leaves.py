"""Finds what does not belong in a state dict: values other than tensors, arrays of NumPy, keys other than strings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Node, Opaque, Part, Sequence, StateDict, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.tree import mapping_at
from ckptdoctor.facts.globals import modern
from ckptdoctor.facts.weight_sets import is_network, weight_sets
from ckptdoctor.noun import noun
from ckptdoctor.rules.structure.without_weights import MODEL_KEYS

_LOOKED_AT = 32  # sets of weights of one file
_EXTRA_STATE = "_extra_state"  # torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX
_ARRAYS = frozenset(
    {"numpy._core.multiarray._reconstruct", "numpy.core.multiarray._reconstruct", "numpy._core.numeric._frombuffer"}
)


@noun
class Leaf:
    """One value of a state dict, and its key there."""

    key: str
    path: KeyPath
    node: Node

    @property
    def is_extra_state(self) -> bool:
        """Whether it is what a module's ``get_extra_state`` gave."""
        return self.key.rpartition(".")[2] == _EXTRA_STATE


def sets_with_others(checkpoint: Checkpoint) -> list[StateDict]:
    """Return the weights that have values other than tensors."""
    return [each for each in _sets(checkpoint) if each.others]


def non_tensors(checkpoint: Checkpoint, state_dict: StateDict) -> list[Leaf]:
    """Return the values of a model's state dict that are not tensors, except for NumPy arrays.

    There are none where most values are of that kind.
    """
    if not state_dict.others or not is_network(state_dict) or len(state_dict.others) >= len(state_dict.tensors):
        return []
    entries = _entries(checkpoint, state_dict.path)
    return _leaves(
        state_dict.path, [entry for entry in entries if not isinstance(entry[1], Tensor) and not is_array(entry[1])]
    )


def arrays(checkpoint: Checkpoint) -> Iterator[tuple[KeyPath, list[Leaf], int]]:
    """Yield where arrays of NumPy stand for the tensors of a state dict.

    It is its path, the arrays, and how many values it has.

    In the weights themselves; and in a dict of nothing but arrays under names with dots, at the top of the file or
    where weights should be.
    """
    places = [each.path for each in sets_with_others(checkpoint)]
    for path in dict.fromkeys([*places, *_model_places(checkpoint)]):
        entries = _entries(checkpoint, path)
        found = _leaves(path, [entry for entry in entries if is_array(entry[1])])
        if found and (path in places or (len(found) == len(entries) and any("." in each.key for each in found))):
            yield path, found, len(entries)


def is_array(node: Node) -> bool:
    """Return whether a node is a pickled ``numpy.ndarray``."""
    if not isinstance(node, Opaque):
        return False
    module, _, name = node.class_name.rpartition(".")
    return ".".join(modern(module, name)) in _ARRAYS


def untextual(checkpoint: Checkpoint) -> Iterator[tuple[KeyPath, list[Part], int]]:
    """Yield dicts of weights with tensors under keys that are not strings.

    Each is the dict's path, these keys, and the number of tensors.
    """
    places = [each.path for each in _sets(checkpoint)]
    for path in dict.fromkeys([*places, *_model_places(checkpoint, top=numbered(checkpoint))]):
        tensors = [part for part, child in _entries(checkpoint, path) if isinstance(child, Tensor)]
        odd: list[Part] = [part for part in tensors if not isinstance(part, str)]
        if odd:
            yield path, odd, len(tensors)


def numbered(checkpoint: Checkpoint) -> bool:
    """Return whether the file is a dict of two or more tensors, each under a number: weights, or any data."""
    entries = _entries(checkpoint, ())
    return len(entries) > 1 and all(isinstance(part, int) and isinstance(child, Tensor) for part, child in entries)


def unnamed(checkpoint: Checkpoint) -> list[Tensor] | None:
    """Return the tensors of a file that is a list or a tuple of two or more of them, or None for any other."""
    tree = checkpoint.tree
    if not isinstance(tree, Sequence) or tree.kind not in ("list", "tuple") or len(tree.items) < 2:
        return None
    tensors = [each for each in tree.items if isinstance(each, Tensor)]
    return tensors if len(tensors) == len(tree.items) else None


def class_of(tree: Node) -> str:
    """Return what Python calls the class of the contents of a torch file; "" where that is not certain."""
    if isinstance(tree, Tensor):
        return "torch.Tensor" if "parameter" not in tree.rebuild else "torch.nn.parameter.Parameter"
    if isinstance(tree, Sequence):
        return tree.kind if tree.kind in ("list", "tuple", "set", "frozenset") else ""
    return type(tree).__name__ if tree is None or isinstance(tree, (bool, int, float, str, bytes)) else ""


@cached_by_identity
def _sets(checkpoint: Checkpoint) -> list[StateDict]:
    return [each for each in weight_sets(checkpoint)[:_LOOKED_AT] if is_network(each)]


def _model_places(checkpoint: Checkpoint, top: bool = True) -> list[KeyPath]:
    """Return the dicts at the top of the file (``top``: and the top itself) under keys that weights are saved under."""
    tree = checkpoint.tree
    if not isinstance(tree, Mapping):
        return []
    below: list[KeyPath] = [
        (part,) for part, child in tree.entries if part in MODEL_KEYS and isinstance(child, Mapping)
    ]
    return [(), *below] if top else below


def _entries(checkpoint: Checkpoint, path: KeyPath) -> tuple[tuple[Part, Node], ...]:
    node = mapping_at(checkpoint.tree, path)
    return node.entries if node is not None else ()


def _leaves(path: KeyPath, entries: Iterable[tuple[Part, Node]]) -> list[Leaf]:
    """Return those of the entries whose keys are texts."""
    return [Leaf(part, (*path, part), child) for part, child in entries if isinstance(part, str)]
