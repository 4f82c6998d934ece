"""The values that count: those of weights, without what holds odd numbers by its nature."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ckptdoctor.checkpoint import Role, StateDict, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.facts.values import TensorValues, Values
from ckptdoctor.facts.weight_sets import may_train, weight_sets
from ckptdoctor.noun import noun

# attention masks hold minus infinity; observers, metrics and ranges begin with infinite bounds, or have none
_MAY_BE_INFINITE = frozenset(
    [
        "mask",
        "masks",
        "min",
        "max",
        "minimum",
        "maximum",
        "low",
        "high",
        "lower",
        "upper",
        "bound",
        "bounds",
        "limit",
        "limits",
        "range",
        "clip",
        "best",
        "inf",
    ]
)
_WORD = re.compile(r"[a-z]+")
_MATRIX = 2  # dimensions of the weights of linear layers and embeddings; convolutions have more


@noun
class Read:
    """A tensor of some weights, with its values."""

    weights: StateDict
    tensor: Tensor
    values: TensorValues

    @property
    def leaf(self) -> str:
        """The last token of its key."""
        return self.tensor.key.rpartition(".")[2]

    @property
    def is_matrix(self) -> bool:
        """Whether it looks like the weight of a layer: two dimensions or more, floats, and a name that says so."""
        named = "weight" in self.leaf or self.leaf == "kernel"
        return named and len(self.tensor.shape) >= _MATRIX and may_train(self.tensor.key, self.tensor.dtype)


@cached_by_identity
def weights_read(values: Values) -> tuple[Read, ...]:
    """The tensors of all weights in the file that were read and hold something, in file order, tied ones once."""
    return tuple(_weights_read(values))


def _weights_read(values: Values) -> Iterator[Read]:
    seen: set[int] = set()
    for state_dict in weight_sets(values.checkpoint):
        for tensor in state_dict.tensors:
            found = values.of(tensor)
            if found is not None and found.count and id(found) not in seen:
                seen.add(id(found))
                yield Read(state_dict, tensor, found)


def not_finite(values: Values, role: Role | None = None) -> list[tuple[Tensor, TensorValues]]:
    """The tensors of state dicts with NaN or infinities that do not belong there, in file order.

    Of optimizers with ``role``; of all others, those outside of every state dict aside, without.
    """
    found = []
    seen: set[int] = set()
    for state_dict in values.checkpoint.state_dicts:
        if (state_dict.role is Role.OPTIMIZER) is not (role is Role.OPTIMIZER) or state_dict.role is Role.RNG:
            continue
        for tensor in state_dict.tensors:
            read = values.of(tensor)
            if read is None or id(tensor) in seen:
                continue
            seen.add(id(tensor))
            if read.nan or (read.infinite and not may_be_infinite(tensor)):
                found.append((tensor, read))
    return found


def may_be_infinite(tensor: Tensor) -> bool:
    """Whether its name or dtype is that of a tensor that holds infinities by its nature."""
    leaf = tensor.key.rpartition(".")[2].lower()
    words = _WORD.findall(leaf)
    named = "mask" in leaf or not _MAY_BE_INFINITE.isdisjoint(words)
    return (named and words[-1] not in ("weight", "bias")) or tensor.dtype.name == "bool"
