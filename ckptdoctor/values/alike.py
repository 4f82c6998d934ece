"""Which tensors of two checkpoints have the same bytes: nothing is measured, and torch is not needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ckptdoctor.checkpoint import Checkpoint, Source, Tensor, progress
from ckptdoctor.values.diff_bytes import Blocks, Files, Run, Tally, batches, runs, workers


def alike(
    pairs: Sequence[tuple[Tensor, Tensor]],
    a: tuple[Checkpoint, Source],
    b: tuple[Checkpoint, Source],
    going: Callable[[int], bool] = lambda done: True,
) -> list[bool | None]:
    """For each pair whether both tensors hold the same bytes in the same order; None where that cannot be told.

    ``going`` gets the bytes of both done now and then. Raises StoppedError once it says False.
    """
    swapped = a[0].big_endian, b[0].big_endian
    told: list[bool | None] = []
    every: list[Run] = []
    for number, (one, other) in enumerate(pairs):
        kind = (one.dtype.name, one.shape) == (other.dtype.name, other.shape)
        found = runs(number, one, other, swapped, a[1].distant or b[1].distant) if kind else []
        told.append(kind if not isinstance(found, str) else None)
        every += [] if isinstance(found, str) else found

    tally = Tally(going)

    def work(group: list[Run]) -> list[tuple[int, bool]]:
        with Files(a[1]) as mine, Files(b[1]) as its:
            blocks = Blocks(mine, its, tally)
            return [(run.number, blocks.same(run)) for run in group]

    with ThreadPoolExecutor(workers(a[1].distant or b[1].distant), thread_name_prefix="ckptdoctor-alike") as pool:
        groups = list(batches(every))
        futures = [pool.submit(work, group) for group in groups]
        try:
            for group, future in zip(groups, futures, strict=True):
                progress.advance(sum([run.nbytes for run in group]))
                for number, same in future.result():
                    told[number] = bool(told[number]) and same
        finally:
            for future in futures:
                future.cancel()
    return told
