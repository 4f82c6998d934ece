"""Which tensors of a state dict can be parameters: what an optimizer can have been given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ckptdoctor.checkpoint import Checkpoint, DType, Role, StateDict, Tensor
from ckptdoctor.checkpoint.expectation import Expected
from ckptdoctor.facts import names
from ckptdoctor.facts.contents import weight_sets
from ckptdoctor.noun import noun

# last tokens of keys that are buffers in every library: norm layers, AveragedModel, rotary embeddings, thop.profile
BUFFERS = frozenset(
    ("running_mean", "running_var", "num_batches_tracked", names.N_AVERAGED, "inv_freq", "total_ops", "total_params")
)
_TRAINED = ("float", "complex")  # torch refuses requires_grad of any other kind
_NOT_TRAINED = (Role.OPTIMIZER, Role.SCHEDULER, Role.RNG)


@noun
class Candidate:
    """A tensor that may be a parameter: its key without the names of wrappers, its shape, and its dtype's name."""

    key: str
    shape: tuple[int, ...]
    dtype: str | None = None


def may_train(key: str, dtype: DType | None) -> bool:
    """Whether a tensor can be a parameter: it has a dtype with gradients, and no name that only buffers have."""
    return (dtype is None or dtype.kind in _TRAINED) and key.rpartition(".")[2] not in BUFFERS


def candidates(state_dict: StateDict) -> list[Candidate]:
    """What may be parameters of a state dict in its order; tensors that are tied count once, as optimizers count."""
    tensors = [each for each in state_dict.tensors if may_train(each.key, each.dtype)]
    return [Candidate(names.bare(each.key), each.shape, each.dtype.name) for each in _untied(tensors)]


def expected_candidates(tensors: Mapping[str, Expected]) -> list[Candidate]:
    """The same of a reference, which does not say what is tied."""
    return [
        Candidate(key, each.shape, each.dtype.name if each.dtype is not None else None)
        for key, each in tensors.items()
        if may_train(key, each.dtype)
    ]


def trainable(checkpoint: Checkpoint) -> int:
    """How many tensors anywhere in the file, outside the states of optimizers, can be parameters at all."""
    outside = {id(tensor) for each in checkpoint.state_dicts if each.role in _NOT_TRAINED for tensor in each.tensors}
    found = [each for each in checkpoint.tensors if id(each) not in outside and may_train(each.key, each.dtype)]
    return sum(1 for _ in _untied(found))


def ordered(wanted: Sequence[Candidate]) -> bool:
    """Whether the order can be the model's own: sorted by name it is more likely that of a file that sorts its keys.

    safetensors sorts by dtype first.
    """
    last: dict[str | None, str] = {}
    for each in wanted:
        if each.key < last.get(each.dtype, ""):
            return True
        last[each.dtype] = each.key
    return False


def only_model(checkpoint: Checkpoint) -> StateDict | None:
    """The weights that the file is about: the only ones, averages of them aside. None where there are several."""
    sets = weight_sets(checkpoint)
    trained = [each for each in sets if each.role is Role.MODEL] or sets
    return trained[0] if len(trained) == 1 else None


def _untied(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Each tensor once: those with one and the same view of a storage are one."""
    seen: set[object] = set()
    for tensor in tensors:
        if tensor.storage is None or not tensor.numel:
            yield tensor
            continue
        view = tensor.place_id
        if view not in seen:
            seen.add(view)
            yield tensor
