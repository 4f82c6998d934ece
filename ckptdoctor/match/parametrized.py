"""Weights that a target wants plain, where a checkpoint has what weight norm or spectral norm computes them of."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint.cached_by_identity import cached_by_identity
from ckptdoctor.match.comparing import Comparison
from ckptdoctor.match.norm_parts import PARAMETRIZATIONS, parts_of
from ckptdoctor.noun import noun


@noun
class Computable:
    """The wanted key ``key``, and the ``parts`` of its ``norm`` that are here; names are those after all cures."""

    key: str
    norm: str
    parts: tuple[str, ...]


@cached_by_identity
def computable(comparison: Comparison) -> tuple[Computable, ...]:
    """Every missing weight whose norm is here, with as many elements in its direction as the target wants."""
    loose = set(comparison.cured.unexpected)
    return tuple([each for key in comparison.cured.missing if loose for each in _found(comparison, key, loose)])


def _found(comparison: Comparison, key: str, loose: set[str]) -> Iterator[Computable]:
    for norm, parts in parts_of(key):
        if loose.issuperset(parts):
            whole = comparison.cured.here[parts[0]]
            if whole.shape == comparison.reference.tensors[key].shape:
                yield Computable(key, norm, parts)
                return


@cached_by_identity
def parametrized(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """Missing weights of which a parametrization is here that no norm is: (wanted key, what it is computed of).

    The file does not say which one it was: of ``torch.nn.utils.parametrizations.orthogonal`` it lacks the map (a matrix
    exponential, Cayley's, Householder's), of a module of one's own everything. Source: ``_Orthogonal.forward``.
    """
    known = {each.key for each in computable(comparison)}
    found = []
    for key in comparison.cured.missing:
        module, dot, name = key.rpartition(".")
        original = f"{module}{dot}{PARAMETRIZATIONS}.{name}.original"
        if key not in known and (original in comparison.cured.here or f"{original}0" in comparison.cured.here):
            found.append((key, original if original in comparison.cured.here else f"{original}0"))
    return tuple(found)


def beside(comparison: Comparison, original: str) -> tuple[str, ...]:
    """All that is here of the parametrizations of one weight: its original, and what they keep."""
    place = original[: original.rindex("original")]
    return tuple([key for key in comparison.cured.here if key.startswith(place)])


@cached_by_identity
def orthogonals(comparison: Comparison) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Those that ``torch.nn.utils.parametrizations.orthogonal`` may be: (wanted key, its original and its base).

    The base is what ``use_trivialization`` keeps, the square matrix that the map's is multiplied by; without it there
    is the original alone, as a module of one's own may have it. Nothing else lies beside them.
    """
    here, found = comparison.cured.here, []
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
