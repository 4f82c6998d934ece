"""Several sets of weights in one file: which are the same network twice, and which are networks of their own."""

from __future__ import annotations

from collections.abc import Sequence

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict, Tensor
from ckptdoctor.facts import names
from ckptdoctor.facts.contents import weight_sets
from ckptdoctor.facts.parameters import may_train
from ckptdoctor.noun import noun

_LOOKED_AT = 64  # sets of one file


@noun(eq=False)
class Network:
    """One network, and every set of its weights: as it was trained, averaged, at its best."""

    sets: tuple[StateDict, ...]


def networks(checkpoint: Checkpoint) -> list[Network]:
    """The networks of a file in file order, each with all its sets of weights: those with the same parameters.

    Statistics for normalizing, look-up tables and the like are no networks: see ``is_network``.
    """
    sets = [each for each in weight_sets(checkpoint)[:_LOOKED_AT] if is_network(each)]
    if len(sets) < 2:  # nothing to tell apart, which is most files
        return [Network((each,)) for each in sets]
    found: dict[frozenset[tuple[str, tuple[int, ...]]], list[StateDict]] = {}
    for each in sets:
        found.setdefault(_parameters(each), []).append(each)
    return [Network(tuple(sets)) for sets in found.values()]


def is_network(state_dict: StateDict) -> bool:
    """Whether this looks like ``Module.state_dict()``: keys with dots, or the weight and bias of a single layer."""
    keys = names.keys_of(state_dict)
    return any("." in key for key in keys) or "weight" in keys


def one_copy(sets: Sequence[StateDict]) -> bool:
    """Whether the sets view the very same storages: one was saved under two names, and nothing was copied."""
    views = [
        frozenset([(each.key, each.storage.key) for each in one.tensors if each.storage is not None]) for one in sets
    ]
    return bool(views[0]) and all(each == views[0] for each in views)


def averaged(state_dict: StateDict) -> bool:
    """Whether its place or its keys say that it is a running average."""
    return state_dict.role is Role.EMA


def tensors_of(state_dict: StateDict) -> tuple[Tensor, ...]:
    """Its tensors without the counter of an ``AveragedModel``."""
    return tuple([each for each in state_dict.tensors if names.bare(each.key) != names.N_AVERAGED])


def _parameters(state_dict: StateDict) -> frozenset[tuple[str, tuple[int, ...]]]:
    """Names, those of wrappers aside, and shapes of what can be parameters: averages often leave out buffers."""
    tensors = tensors_of(state_dict)
    trained = [each for each in tensors if may_train(each.key, each.dtype)]
    return frozenset([(names.bare(each.key), each.shape) for each in trained or tensors])
