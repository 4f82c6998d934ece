"""Weights that were pruned: what ``torch.nn.utils.prune`` keeps of each, and which of them a target wants plain.

``BasePruningMethod.apply`` (torch 2.13, nn/utils/prune.py) puts ``<name>_orig`` (a parameter) and ``<name>_mask`` (a
buffer) in the place of the parameter ``<name>``, whatever that is called; ``remove`` puts their product back.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from ckptdoctor.checkpoint import StateDict, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.match.comparing import Comparison
from ckptdoctor.noun import noun

ORIGINAL, MASK = "_orig", "_mask"
# what other norms keep beside an original: then it is no question of masks alone
_OTHERS = ("_u", "_v", "_g")


@noun
class Pruned:
    """The parameter ``key``, and its two parts here; None for one that is not.

    ``fits``: their shapes are those of such a pair, and that which the target wants.
    """

    key: str
    original: Tensor | None
    mask: Tensor | None
    fits: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """What the keys of the parts that are here end in: the names that they have after all cures."""
        ends = ((self.original, ORIGINAL), (self.mask, MASK))
        return tuple([self.key + end for tensor, end in ends if tensor is not None])


@cached_by_identity
def pruned_in(state_dict: StateDict) -> tuple[Pruned, ...]:
    """Every parameter of which both parts are in a state dict, and which is not there itself."""
    here = {tensor.key: tensor for tensor in state_dict.tensors}
    names = [key.removesuffix(MASK) for key in here if key.endswith(MASK)]
    return tuple([each for name in names if name not in here for each in _found(name, here, here) if each.original])


@cached_by_identity
def pruned_for(comparison: Comparison) -> tuple[Pruned, ...]:
    """Every missing key of which a part is here that the target does not want, under the names after all cures."""
    cured = comparison.cured
    loose = set(cured.unexpected)
    return tuple([each for key in cured.missing if loose for each in _wanted(comparison, key, loose)])


def _wanted(comparison: Comparison, key: str, loose: set[str]) -> Iterator[Pruned]:
    for found in _found(key, comparison.cured.here, loose):
        whole = found.original
        same = whole is None or whole.shape == comparison.reference.tensors[key].shape
        yield Pruned(key, found.original, found.mask, found.fits and same)


def _found(key: str, here: Mapping[str, Tensor], loose: Container[str]) -> Iterator[Pruned]:
    original, mask = (here.get(key + end) if key + end in loose else None for end in (ORIGINAL, MASK))
    if (original is None and mask is None) or any(key + end in here for end in _OTHERS):
        return
    fits = original is not None and mask is not None and _fit(original, mask)
    yield Pruned(key, original, mask, fits)


def _fit(original: Tensor, mask: Tensor) -> bool:
    return original.shape == mask.shape and original.device == mask.device
