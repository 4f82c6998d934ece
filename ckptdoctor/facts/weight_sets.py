"""Finds the sets of weights in a checkpoint, what in them can be a parameter, and which sets are one network."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterable, Iterator

from ckptdoctor.checkpoint import Checkpoint, DType, KeyPath, Mapping, Role, Sequence, StateDict, Tensor, children
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.checkpoint.expectation import Expected
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.facts import names
from ckptdoctor.noun import noun

# ---- where weights are, and where they should be


@cached_by_identity
def weight_sets(checkpoint: Checkpoint) -> list[StateDict]:
    """Return the weights (``weights_among``) that can be reached through dicts and lists alone."""
    plain = _plain_places(checkpoint)
    return [each for each in weights_among(checkpoint.state_dicts) if each.path in plain]


@cached_by_identity
def _plain_places(checkpoint: Checkpoint) -> set[KeyPath]:
    """Return the paths of all dicts and lists that are inside dicts and lists only."""
    found: set[KeyPath] = set()
    stack: list[tuple[KeyPath, Mapping | Sequence]] = []
    if isinstance(checkpoint.tree, (Mapping, Sequence)):
        stack.append(((), checkpoint.tree))
    wanted = {each.path[:depth] for each in checkpoint.state_dicts for depth in range(len(each.path) + 1)}
    while stack:
        path, node = stack.pop()
        found.add(path)
        for part, child in children(node) if not _only_tensors(node) else ():
            below = (*path, part)
            if below in wanted and isinstance(child, (Mapping, Sequence)):
                stack.append((below, child))
    return found


def _only_tensors(node: Mapping | Sequence) -> bool:
    inside = [child for _, child in node.entries] if isinstance(node, Mapping) else node.items
    return {type(child) for child in inside} <= {Tensor}


# ---- what can be a parameter


# last tokens of keys that are buffers in every library: norm layers, AveragedModel, rotary embeddings, thop.profile
BUFFERS = frozenset(
    ("running_mean", "running_var", "num_batches_tracked", names.N_AVERAGED, "inv_freq", "total_ops", "total_params")
)
_TRAINED = ("float", "complex")  # torch refuses requires_grad of any other kind


@noun
class Candidate:
    """A tensor that may be a parameter: its key without the names of wrappers, its shape, and its dtype's name."""

    key: str
    shape: tuple[int, ...]
    dtype: str | None = None


def may_train(key: str, dtype: DType | None) -> bool:
    """Return whether a tensor can be a parameter: it has a dtype with gradients, and no name that only buffers have."""
    return (dtype is None or dtype.kind in _TRAINED) and key.rpartition(".")[2] not in BUFFERS


def candidates(state_dict: StateDict) -> list[Candidate]:
    """Return what may be parameters of a state dict in its order.

    Tensors that are tied count once, as optimizers count.
    """
    tensors = [each for each in state_dict.tensors if may_train(each.key, each.dtype)]
    return [Candidate(names.bare(each.key), each.shape, each.dtype.name) for each in untied(tensors)]


def expected_candidates(tensors: abc.Mapping[str, Expected]) -> list[Candidate]:
    """Return the same of a reference, which does not say what is tied."""
    return [
        Candidate(key, each.shape, each.dtype.name if each.dtype is not None else None)
        for key, each in tensors.items()
        if may_train(key, each.dtype)
    ]


def ordered(wanted: abc.Sequence[Candidate]) -> bool:
    """Return whether the order can be the model's own.

    Sorted by name it is more likely that of a file that sorts its keys.

    safetensors sorts by dtype first.
    """
    last: dict[str | None, str] = {}
    for each in wanted:
        if each.key < last.get(each.dtype, ""):
            return True
        last[each.dtype] = each.key
    return False


def only_model(checkpoint: Checkpoint) -> StateDict | None:
    """Return the weights that the file is about: the only ones, averages of them aside.

    None where there are several.
    """
    sets = weight_sets(checkpoint)
    trained = [each for each in sets if each.role is Role.MODEL] or sets
    return trained[0] if len(trained) == 1 else None


def untied(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield each tensor once: those with one and the same view of a storage are one."""
    seen: set[object] = set()
    for tensor in tensors:
        if tensor.storage is None or not tensor.numel:
            yield tensor
            continue
        view = tensor.place_id
        if view not in seen:
            seen.add(view)
            yield tensor


# ---- several sets of weights in one file


_LOOKED_AT = 64  # sets of one file


@noun(eq=False)
class Network:
    """One network, and every set of its weights: as it was trained, averaged, at its best."""

    sets: tuple[StateDict, ...]


@cached_by_identity
def networks(checkpoint: Checkpoint) -> list[Network]:
    """Return the networks of a file in file order, each with all its sets of weights: those with the same parameters.

    Statistics for normalizing, look-up tables and the like are not networks: see ``is_network``.
    """
    sets = [each for each in weight_sets(checkpoint)[:_LOOKED_AT] if is_network(each)]
    if len(sets) < 2:  # nothing to tell apart, which is most files
        return [Network((each,)) for each in sets]
    found: dict[frozenset[tuple[str, tuple[int, ...]]], list[StateDict]] = {}
    for each in sets:
        found.setdefault(_parameters(each), []).append(each)
    return [Network(tuple(sets)) for sets in found.values()]


def is_network(state_dict: StateDict) -> bool:
    """Return whether this looks like ``Module.state_dict()``: keys with dots, or weight and bias of one layer."""
    keys = names.keys_of(state_dict)
    return any("." in key for key in keys) or "weight" in keys


def tensors_of(state_dict: StateDict) -> tuple[Tensor, ...]:
    """Return its tensors without the counter of an ``AveragedModel``."""
    if not names.mentions(state_dict, (names.N_AVERAGED,)):
        return state_dict.tensors
    return tuple([each for each in state_dict.tensors if names.bare(each.key) != names.N_AVERAGED])


def _parameters(state_dict: StateDict) -> frozenset[tuple[str, tuple[int, ...]]]:
    """Return names, those of wrappers aside, and shapes of what can be parameters: averages often leave out buffers."""
    tensors = tensors_of(state_dict)
    trained = [each for each in tensors if may_train(each.key, each.dtype)]
    return frozenset([(names.bare(each.key), each.shape) for each in trained or tensors])
