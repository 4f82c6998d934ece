"""The bytes of a storage as they go into another file, legacy or archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ckptdoctor.checkpoint import FileSource, Source
from ckptdoctor.formats.torch_legacy.storages import Place
from ckptdoctor.formats.torch_objects import StoragePlan
from ckptdoctor.formats.torch_objects.plans import ReadStorage
from ckptdoctor.writing.recipe import Copy, Generated, Literal, Segment


def elements(source: Source, places: Mapping[str, Place], plan: StoragePlan) -> list[Segment]:
    """The bytes of one storage, copied or made while writing."""
    if plan.data is not None:
        return [Literal(plan.data)]
    if plan.generate is not None:
        bases = {key: places[key].offset for key in plan.sources}
        return [Generated(plan.nbytes, _reopened(source.file, bases, plan.generate))]
    base = places[plan.old.key].offset
    return [Copy(base + offset, length) for offset, length in plan.pieces or ()]


def _reopened(
    path: str, bases: Mapping[str, int], generate: Callable[[ReadStorage], Iterator[bytes]]
) -> Callable[[], Iterator[bytes]]:
    """Chunks from the file at ``path``, opened each time, because the source of the plan may be closed by then."""

    def produce() -> Iterator[bytes]:
        with FileSource(path) as source:
            yield from generate(lambda key, offset, length: source.read(bases[key] + offset, length))

    return produce
