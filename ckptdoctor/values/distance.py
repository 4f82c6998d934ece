"""Measures how far the weights of two checkpoints are apart, all of them together: one read of each, one chunk held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ckptdoctor.checkpoint import Source, Tensor
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.checkpoint.sharing import view_in_file
from ckptdoctor.differences import Difference, Numbers, Pair
from ckptdoctor.facts.reader_notes import require_own_values
from ckptdoctor.values.diff_bytes import leaves, runs
from ckptdoctor.values.diff_numbers import DifferenceMeter, Tolerance, why_opaque
from ckptdoctor.values.files import Files


def distance(found: Difference, a: Source, b: Source, work: Work | None = None) -> Numbers:
    """Return the difference of all weights that both have and that are floats, as if they were one tensor.

    Tied tensors count once. It is done in this thread alone, so that a training that runs meanwhile keeps its cores.
    ``work`` counts the bytes of both. Raises DamagedError for a file of which torch loads other values than it shows.
    """
    for side in (found.a, found.b):
        require_own_values(side.checkpoint, side.root)
    swapped = found.a.checkpoint.big_endian, found.b.checkpoint.big_endian
    total = Numbers()
    with Files(a) as here, Files(b) as there:
        meter = DifferenceMeter(here, there, Tolerance(), work)
        for number, pair in enumerate(measurable(found.pairs)):
            made = runs(number, pair.a, pair.b, swapped, a.distant or b.distant)
            for run in made if not isinstance(made, str) else ():
                total += meter.measure(run)
    return total


def measurable(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield the pairs of weights that can be subtracted: floats of one shape, those of tied tensors once.

    Integers are left out: a counter such as num_batches_tracked would outweigh every weight.
    """
    seen = set()
    for pair in pairs:
        views = view_in_file(pair.a), view_in_file(pair.b)
        if pair.weights and not pair.reshaped and is_float(pair.a) and is_float(pair.b) and views not in seen:
            seen.add(views)
            yield pair


def is_float(tensor: Tensor) -> bool:
    """Return whether a tensor is plain floats that can be computed with."""
    plain = leaves(tensor)
    return (
        not isinstance(plain, str)
        and len(plain) == 1
        and plain[0].dtype.kind in ("float", "complex")
        and why_opaque(plain[0].dtype) is None
    )
