"""Holds the values of two checkpoints against each other: bytes first, numbers only where those differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from threading import local
from typing import TypeVar

from ckptdoctor.checkpoint import Checkpoint, NoteKind, Source, Tensor
from ckptdoctor.differences import Difference, Numbers, Pair, Values, Verdict
from ckptdoctor.values.diff_bytes import Blocks, Files, Run, batches, leaves, runs, workers
from ckptdoctor.values.diff_contents import by_contents

Told = TypeVar("Told")
Worker = Callable[[Files, Files], Callable[[Run], Told]]

_SPARSE = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


def compare_values(found: Difference, a: Source, b: Source) -> Difference:
    """The same with what the values say, tensor by tensor; also what has another name and the same contents.

    Neither file is held in memory, and torch is imported only where bytes differ.
    """
    swapped = _swapped(found.a.checkpoint), _swapped(found.b.checkpoint)
    found = by_contents(found, a, b, swapped)
    first: dict[object, int] = {}  # tied tensors are compared once
    same_as = [
        first.setdefault(_views(pair), number) if pair.values is None else number
        for number, pair in enumerate(found.pairs)
    ]
    wanted = [number for number, pair in enumerate(found.pairs) if same_as[number] == number and pair.values is None]
    told = _compared(found, wanted, a, b, swapped)
    pairs = [replace(pair, values=told.get(same_as[number], pair.values)) for number, pair in enumerate(found.pairs)]
    found = replace(found, pairs=tuple(pairs))
    changed = [pair for pair in pairs if pair.weights and pair.values is not None and pair.values.numbers is not None]
    if not changed:
        return found
    from ckptdoctor.values.diff_rank import ranks

    once = {id(pairs[number]) for number in wanted}
    return replace(found, ranks=ranks([pair for pair in changed if id(pair) in once], a, b, swapped))


def _compared(
    found: Difference, wanted: Sequence[int], a: Source, b: Source, swapped: tuple[bool, bool]
) -> dict[int, Values]:
    """What is told of each pair by its number."""
    told: dict[int, Values] = {}
    every: list[Run] = []
    distant = a.distant or b.distant
    for number in wanted:
        pair = found.pairs[number]
        made = runs(number, pair.a, pair.b, swapped, distant)
        if isinstance(made, str):
            told[number] = Values(Verdict.NOT_COMPARED, why=made)
        elif pair.reshaped and pair.recast:
            told[number] = Values(Verdict.NOT_COMPARED, why="they have other shapes")
        else:
            told[number] = Values(Verdict.EQUAL if not pair.recast else Verdict.ROUNDED)
            every += made
    apart = _unlike(every, a, b)
    leaves_apart: dict[int, set[int]] = defaultdict(set)
    for number, leaf in apart:
        leaves_apart[number].add(leaf)
    for number, which in leaves_apart.items():
        told[number] = _settled(found.pairs[number], which)
    wide = [run for run in every if told[run.number].verdict is Verdict.CHANGED and (run.number, run.leaf) in apart]
    return told | _measured(found, wide, a, b) if wide else told


def _unlike(every: Sequence[Run], a: Source, b: Source) -> set[tuple[int, int]]:
    """The tensors, and parts of them, whose bytes differ; and those of other dtypes, whose bytes tell nothing."""
    apart = {(run.number, run.leaf) for run in every if run.a.dtype != run.b.dtype}
    left = [run for run in every if (run.number, run.leaf) not in apart]

    def worker(one: Files, other: Files) -> Callable[[Run], bool]:
        return Blocks(one, other).same

    for run, same in zip(left, _spread(left, worker, a, b), strict=True):
        if not same:
            apart.add((run.number, run.leaf))
    return apart


def _settled(pair: Pair, apart: set[int]) -> Values:
    """What is to be said of tensors with other bytes in these leaves; what CHANGED still has to be measured."""
    from ckptdoctor.values.diff_numbers import why_opaque

    if pair.reshaped:
        return Values(Verdict.NOT_COMPARED, why="they have other shapes")
    for tensor in (pair.a, pair.b):
        if tensor.dtype.kind == "quantized":
            return Values(Verdict.OTHER_BYTES, why="quantized")
        plain = leaves(tensor)
        assert not isinstance(plain, str)
        why = why_opaque(plain[-1].dtype)
        if why is None and len(plain) > 1:
            why = _why_apart(tensor, apart, len(plain) - 1)
        if why is not None:
            return Values(Verdict.OTHER_BYTES, why=why)
    return Values(Verdict.CHANGED)


def _why_apart(tensor: Tensor, apart: set[int], last: int) -> str | None:
    """Why there is no subtracting tensors made of several: the values of sparse ones come last."""
    if tensor.layout not in _SPARSE:
        return f"a {tensor.subclass or tensor.layout}"
    return "values in other places" if apart != {last} else None


def _measured(found: Difference, wide: Sequence[Run], a: Source, b: Source) -> dict[int, Values]:
    """How far the tensors are apart whose bytes differ."""
    import torch

    from ckptdoctor.values.diff_numbers import Meter, Tolerance

    tolerance = Tolerance(found.rtol, found.atol)

    def worker(one: Files, other: Files) -> Callable[[Run], Numbers]:
        torch.set_num_threads(1)  # of this thread: together they are as many as there are cores
        return Meter(one, other, tolerance).measure

    sums: dict[int, Numbers] = defaultdict(Numbers)
    before = torch.get_num_threads()
    try:
        for run, numbers in zip(wide, _spread(wide, worker, a, b), strict=True):
            sums[run.number] += numbers
    finally:
        torch.set_num_threads(before)
    return {number: Values(_verdict(found.pairs[number], each), each) for number, each in sums.items()}


def _verdict(pair: Pair, numbers: Numbers) -> Verdict:
    if pair.recast and numbers.rounded:
        return Verdict.ROUNDED
    within = not numbers.beyond and (numbers.changed or pair.recast)
    return Verdict.CLOSE if within else Verdict.CHANGED


def _spread(every: Sequence[Run], worker: Worker[Told], a: Source, b: Source) -> Iterator[Told]:
    """What workers tell of each run, in order; each thread has a worker and open files of its own."""
    kept = local()
    with ExitStack() as stack:

        def told(group: list[Run]) -> list[Told]:
            if not hasattr(kept, "work"):
                kept.work = worker(stack.enter_context(Files(a)), stack.enter_context(Files(b)))
            return [kept.work(run) for run in group]

        with ThreadPoolExecutor(workers(a.distant or b.distant), thread_name_prefix="ckptdoctor-diff") as pool:
            futures = [pool.submit(told, group) for group in batches(every)]
            try:
                for future in futures:
                    yield from future.result()
            finally:
                for future in futures:
                    future.cancel()


def _swapped(checkpoint: Checkpoint) -> bool:
    return any(note.kind is NoteKind.BIG_ENDIAN for note in checkpoint.notes)


def _views(pair: Pair) -> object:
    """What two tied tensors have in common on both sides; nothing is tied that has no storage of its own."""
    return _view(pair.a), _view(pair.b)


def _view(tensor: Tensor) -> object:
    storage = tensor.storage
    if storage is None or storage.extent is None or tensor.parts or tensor.chunks:
        return tensor.path
    return storage.extent, tensor.offset, tensor.shape, tensor.stride, tensor.dtype.name, tensor.details
