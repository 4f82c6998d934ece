"""Compares the values of two checkpoints whose headers have been compared, and tells what is known as it goes."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from ckptdoctor import formats
from ckptdoctor.checkpoint import Container
from ckptdoctor.checkpoint.progress import Listener, Work
from ckptdoctor.differences import Difference, Side, SoFar
from ckptdoctor.diffing.request import DiffRequest
from ckptdoctor.diffing.summary import summary
from ckptdoctor.diffing.ties import ties
from ckptdoctor.errors import UnreadableError


def compare_values_of(found: Difference, request: DiffRequest, sofar: SoFar, listener: Listener) -> Difference | None:
    """The same with what the values say; None where ``listener`` wanted no more.

    ``sofar`` hears what is known so far, and which pairs are new in it.
    Pairs whose values are known are not read again: what was broken off can be gone on with. Raises UnreadableError
    when a file is not the one whose headers were read.
    """
    from ckptdoctor.errors import StoppedError
    from ckptdoctor.values.differences import bytes_to_compare, compare_values

    start = perf_counter()
    left = replace(found, pairs=tuple([pair for pair in found.pairs if pair.values is None]))
    work = Work("values", bytes_to_compare(left), listener)
    with formats.opened(request.a) as (one, first), formats.opened(request.b) as (other, second):
        for side, container in ((found.a, first), (found.b, second)):
            _require_the_same(side, container)
        try:
            found = compare_values(found, one, other, work, sofar)
        except StoppedError:
            return None
    found = replace(found, compared=True, seconds=found.seconds + perf_counter() - start)
    found = replace(found, ties=ties(found.pairs, found.removed, found.added))
    return replace(found, summary=summary(found))


def _require_the_same(side: Side, container: Container) -> None:
    if container.identity != side.checkpoint.identity:
        raise UnreadableError(f"{side.path} has changed since its headers were read: open it again.")
