"""Finds the tensors of a file that a target has as one, and that are several there."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint.tensor import same_checksums
from ckptdoctor.facts.names import TiedPair
from ckptdoctor.match.comparison import Comparison


def pairs_of_target(comparison: Comparison) -> Iterator[TiedPair]:
    """Yield the tensors that fit names of one tensor of the target, the first of each group with every other.

    Whether two are the same is known where the file has them as one, or has checksums of both.
    """
    fits = set(comparison.renamed.fits) if comparison.reference.ties else set()
    for keys in comparison.reference.ties:
        tensors = [comparison.renamed.here[key] for key in keys if key in fits]
        for other in tensors[1:]:
            # elements of two dtypes may be equal although their bytes are not
            if other.dtype == tensors[0].dtype:
                yield TiedPair(other, tensors[0], same_checksums(other, tensors[0]), comparison.reference.source)
