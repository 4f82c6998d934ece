"""Finds weights that a target wants plain, where a checkpoint has what they are computed of: norms, or pruning."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from ckptdoctor.checkpoint import StateDict, Tensor
from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.meanings import PARAMETRIZATIONS, parts_of
from ckptdoctor.noun import noun


@noun
class Computable:
    """The wanted key ``key``, and the ``parts`` of its ``norm`` that are here; names are those after all renames."""

    key: str
    norm: str
    parts: tuple[str, ...]


@cached_by_identity
def computable(comparison: Comparison) -> tuple[Computable, ...]:
    """Return every missing weight whose norm is here, with as many elements in its direction as the target wants."""
    loose = set(comparison.renamed.unexpected)
    return tuple([each for key in comparison.renamed.missing if loose for each in _found_norm(comparison, key, loose)])


def _found_norm(comparison: Comparison, key: str, loose: set[str]) -> Iterator[Computable]:
    for norm, parts in parts_of(key):
        if loose.issuperset(parts):
            whole = comparison.renamed.here[parts[0]]
            if whole.shape == comparison.reference.tensors[key].shape:
                yield Computable(key, norm, parts)
                return


@cached_by_identity
def parametrized(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """Return missing weights of which a parametrization is here that no norm is: (wanted key, what it is computed of).

    The file does not say which one it was: of ``torch.nn.utils.parametrizations.orthogonal`` it lacks the map (a matrix
    exponential, Cayley's, Householder's), of a module of one's own everything. Source: ``_Orthogonal.forward``.
    """
    known = {each.key for each in computable(comparison)}
    found = []
    for key in comparison.renamed.missing:
        module, dot, name = key.rpartition(".")
        original = f"{module}{dot}{PARAMETRIZATIONS}.{name}.original"
        if key not in known and (original in comparison.renamed.here or f"{original}0" in comparison.renamed.here):
            found.append((key, original if original in comparison.renamed.here else f"{original}0"))
    return tuple(found)


def beside(comparison: Comparison, original: str) -> tuple[str, ...]:
    """Return all that is here of the parametrizations of one weight: its original, and what they keep."""
    place = original[: original.rindex("original")]
    return tuple([key for key in comparison.renamed.here if key.startswith(place)])


@cached_by_identity
def orthogonals(comparison: Comparison) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return those that ``torch.nn.utils.parametrizations.orthogonal`` may be: (wanted key, its original and its base).

    The base is what ``use_trivialization`` keeps, the square matrix that the map's is multiplied by; without it there
    is the original alone, as a module of one's own may have it. Nothing else lies beside them.
    """
    here, found = comparison.renamed.here, []
    for key, original in parametrized(comparison):
        parts = tuple([part for part in (original, original.removesuffix("original") + "0.base") if part in here])
        shapes = [here[part].shape for part in parts]
        alone = original.endswith(".original") and set(beside(comparison, original)) == set(parts)
        if not alone or len(shapes[0]) < 2 or shapes[0] != comparison.reference.tensors[key].shape:
            continue
        size = max(shapes[0][-2:])
        if len({here[part].dtype.name for part in parts}) == 1 and shapes[1:] in ([], [(*shapes[0][:-2], size, size)]):
            found.append((key, parts))
    return tuple(found)


# ---- torch.nn.utils.prune.
#
# ``BasePruningMethod.apply`` (torch 2.13, nn/utils/prune.py) puts ``<name>_orig`` (a parameter) and ``<name>_mask`` (a
# buffer) in the place of the parameter ``<name>``, whatever that is called; ``remove`` puts their product back


ORIGINAL, MASK = "_orig", "_mask"
# what other norms keep beside an original: then it is no question of masks alone
_NORM_PARTS = ("_u", "_v", "_g")


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
        """What the keys of the parts that are here end in: the names that they have after all renames."""
        ends = ((self.original, ORIGINAL), (self.mask, MASK))
        return tuple([self.key + end for tensor, end in ends if tensor is not None])


@cached_by_identity
def pruned_in(state_dict: StateDict) -> tuple[Pruned, ...]:
    """Return every parameter of which both parts are in a state dict, and which is not there itself."""
    here = {tensor.key: tensor for tensor in state_dict.tensors}
    names = [key.removesuffix(MASK) for key in here if key.endswith(MASK)]
    return tuple(
        [each for name in names if name not in here for each in _found_pruned(name, here, here) if each.original]
    )


@cached_by_identity
def pruned_for(comparison: Comparison) -> tuple[Pruned, ...]:
    """Return every missing key of which an unwanted part is here, under the names after all renames."""
    renamed = comparison.renamed
    loose = set(renamed.unexpected)
    return tuple([each for key in renamed.missing if loose for each in _wanted(comparison, key, loose)])


def _wanted(comparison: Comparison, key: str, loose: set[str]) -> Iterator[Pruned]:
    for found in _found_pruned(key, comparison.renamed.here, loose):
        whole = found.original
        same = whole is None or whole.shape == comparison.reference.tensors[key].shape
        yield Pruned(key, found.original, found.mask, found.fits and same)


def _found_pruned(key: str, here: Mapping[str, Tensor], loose: Container[str]) -> Iterator[Pruned]:
    original, mask = (here.get(key + end) if key + end in loose else None for end in (ORIGINAL, MASK))
    if (original is None and mask is None) or any(key + end in here for end in _NORM_PARTS):
        return
    fits = original is not None and mask is not None and _are_alike(original, mask)
    yield Pruned(key, original, mask, fits)


def _are_alike(original: Tensor, mask: Tensor) -> bool:
    return original.shape == mask.shape and original.device == mask.device
