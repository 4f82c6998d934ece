"""Weights that a target wants plain, where a checkpoint has what weight norm or spectral norm computes them of."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.facts.alignment import Comparison
from ckptdoctor.facts.norm_parts import parts_of
from ckptdoctor.facts.once import once
from ckptdoctor.late import late_dataclass


@late_dataclass(frozen=True)
class Computable:
    """The wanted key ``key``, and the ``parts`` of its ``norm`` that are here; names are those after all cures."""

    key: str
    norm: str
    parts: tuple[str, ...]


@once
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
