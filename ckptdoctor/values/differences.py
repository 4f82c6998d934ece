"""Compares the values of two checkpoints: bytes first, numbers only where those differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import local
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from ckptdoctor.checkpoint import Source, Tensor
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.checkpoint.sharing import view_in_file
from ckptdoctor.differences import Difference, Numbers, Pair, Single, SoFar, Values, Verdict
from ckptdoctor.facts.reader_notes import require_own_values
from ckptdoctor.formats.fresh.strided import segments
from ckptdoctor.noun import replace
from ckptdoctor.values.diff_bytes import Blocks, ByteRun, batches, leaves, runs, workers
from ckptdoctor.values.files import Files
from ckptdoctor.writing.recipe import Generated

if TYPE_CHECKING:
    from ckptdoctor.values.diff_numbers import DifferenceMeter

Told = TypeVar("Told")  # what a thread says of a run
Kept = TypeVar("Kept")  # what a thread keeps for all its runs

_LIKE_ITSELF = 0.1  # relative L2: a matrix that is closer to another has not got its rows and columns exchanged
_PORTION = 128 << 20  # bytes of A, or so many tensors, that are read before it is told how they compare
_SOON = 0.2  # seconds: what takes less is not worth telling apart, and threads wait for the last of each portion
_MANY = 20_000
_SPARSE = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


def compare_values(
    found: Difference, a: Source, b: Source, work: Work | None = None, sofar: SoFar | None = None
) -> Difference:
    """Return the same with what the values say, tensor by tensor; also what has another name and the same contents.

    Neither file is held in memory, and NumPy is imported only where bytes differ. ``work`` counts the bytes of both
    that are done, of ``bytes_to_compare``; StoppedError is raised once nobody wants the rest. Pairs whose values are
    known already are left as they are. ``sofar`` is told what is known so far: first the pairs that contents have
    brought together, then after every so many bytes. Raises DamagedError for a file of which torch loads other values
    than it shows.
    """
    for side in (found.a, found.b):
        require_own_values(side.checkpoint, side.root)
    swapped = found.a.checkpoint.big_endian, found.b.checkpoint.big_endian
    work = work or Work()
    found = by_contents(found, a, b, swapped, work)
    tied = _tied(found.pairs)
    if sofar is not None:
        sofar(found, range(0))
    with _Threads(found, a, b, work) as threads:
        for some in [list(tied)] if sofar is None else _portions(found, list(tied)):
            told = _compared(found, some, swapped, threads)
            turned = _transposed(found, told, a, b, swapped, work)
            pairs = list(found.pairs)
            known = [(number, first) for first in told for number in tied[first]]
            for number, first in known:
                values = turned.get(first, told[first])
                pairs[number] = replace(pairs[number], values=values, transposed=first in turned)
            found = replace(found, pairs=tuple(pairs))
            if sofar is not None:
                sofar(found, [number for number, _ in known])
    return _ranked(found, tied, a, b, swapped, work)


def _tied(pairs: Sequence[Pair]) -> dict[int, list[int]]:
    """Return the numbers of all pairs that are not known yet, those of tied tensors under the first, itself included.

    Tied tensors have the same values: only the first of them is compared.
    """
    tied: dict[object, list[int]] = defaultdict(list)
    for number, pair in enumerate(pairs):
        if pair.values is None:
            tied[_views(pair)].append(number)
    return {numbers[0]: numbers for numbers in tied.values()}


def _ranked(
    found: Difference, tied: dict[int, list[int]], a: Source, b: Source, swapped: tuple[bool, bool], work: Work
) -> Difference:
    """Return the same with the ranks of what changed in weights, those of tied tensors once."""
    again = {number for first, numbers in tied.items() for number in numbers if number != first}
    changed = [
        pair
        for number, pair in enumerate(found.pairs)
        if number not in again and pair.weights and pair.values is not None and pair.values.numbers is not None
    ]
    if not changed:
        return found
    from ckptdoctor.values.diff_numbers import ranks

    return replace(found, ranks=ranks(changed, a, b, swapped, work))


def _portions(found: Difference, wanted: Sequence[int]) -> Iterator[list[int]]:
    """Yield the pairs that are compared before what is known is told: more of them where that takes no time."""
    some: list[int] = []
    held, most, start = 0, _PORTION, perf_counter()
    for number in wanted:
        some.append(number)
        held += found.pairs[number].a.nbytes
        if held >= most or len(some) >= _MANY:
            yield some
            most *= 2 if perf_counter() - start < _SOON else 1
            some, held, start = [], 0, perf_counter()
    if some:
        yield some


def bytes_to_compare(found: Difference) -> int:
    """Return the number of bytes of both sides to compare: those of tied tensors once."""
    tensors = [each.tensor for side in candidates(found) for each in side]
    looked_for = set(map(id, tensors))  # with the pairs that are guesses
    once = {_views(pair): pair for pair in found.pairs if not (id(pair.a) in looked_for and id(pair.b) in looked_for)}
    tensors += [tensor for pair in once.values() for tensor in (pair.a, pair.b)]
    return sum([tensor.nbytes for tensor in tensors])


def _transposed(
    found: Difference, told: dict[int, Values], a: Source, b: Source, swapped: tuple[bool, bool], work: Work
) -> dict[int, Values]:
    """Return the matrices whose values are the same with rows and columns exchanged, by number."""
    numbers = [number for number, values in told.items() if _may_be_transposed(found.pairs[number], values)]
    if not numbers:
        return {}
    pairs = list(found.pairs)
    for number in numbers:
        one = pairs[number].a
        pairs[number] = replace(pairs[number], a=replace(one, shape=one.shape[::-1], stride=one.stride[::-1]))
    turned = replace(found, pairs=tuple(pairs))
    with _Threads(found, a, b, work.again()) as threads:
        made = _compared(turned, numbers, swapped, threads)
    return {number: values for number, values in made.items() if replace(pairs[number], values=values).settled}


def _may_be_transposed(pair: Pair, values: Values) -> bool:
    """Return whether the shapes, or the figures of a square matrix, leave that open: its norm would be the same."""
    if pair.perhaps_transposed:
        return values.verdict is Verdict.NOT_COMPARED and not isinstance(leaves(pair.a), str) and not pair.a.parts
    shape, numbers = pair.a.shape, values.numbers
    if values.verdict is not Verdict.CHANGED or numbers is None or pair.a.parts:
        return False
    if len(shape) != 2 or shape != pair.b.shape or shape[0] != shape[1] or pair.a.chunks:
        return False
    room = 0.01 if pair.recast else 1e-5
    return abs(numbers.square_a - numbers.square_b) <= room * numbers.square_a and numbers.relative > _LIKE_ITSELF


def _compared(
    found: Difference, wanted: Sequence[int], swapped: tuple[bool, bool], threads: _Threads
) -> dict[int, Values]:
    """Return the result for each pair by its number."""
    told: dict[int, Values] = {}
    every: list[ByteRun] = []
    for number in wanted:
        pair = found.pairs[number]
        made = runs(number, pair.a, pair.b, swapped, threads.distant)
        if isinstance(made, str):
            told[number] = Values(Verdict.NOT_COMPARED, why=made)
        elif pair.reshaped and pair.recast:
            told[number] = Values(Verdict.NOT_COMPARED, why="their shapes differ")
        else:
            told[number] = Values(Verdict.EQUAL if not pair.recast else Verdict.ROUNDED)
            every += made
    apart = _unlike(every, threads)
    leaves_apart: dict[int, set[int]] = defaultdict(set)
    for number, leaf in apart:
        leaves_apart[number].add(leaf)
    for number, which in leaves_apart.items():
        told[number] = _verdict_on_bytes(found.pairs[number], which)
    wide = [run for run in every if told[run.number].verdict is Verdict.CHANGED and (run.number, run.leaf) in apart]
    return told | _measured(found, wide, threads) if wide else told


def _unlike(every: Sequence[ByteRun], threads: _Threads) -> set[tuple[int, int]]:
    """Return the (tensor, part of it) whose bytes differ, or whose dtypes do: then their bytes tell nothing."""
    apart = {(run.number, run.leaf) for run in every if run.a.dtype != run.b.dtype}
    left = [run for run in every if (run.number, run.leaf) not in apart]
    for run, same in zip(left, threads.same(left), strict=True):
        if not same:
            apart.add((run.number, run.leaf))
    return apart


def _verdict_on_bytes(pair: Pair, apart: set[int]) -> Values:
    """Return the verdict on tensors with other bytes in these leaves; what CHANGED still has to be measured."""
    from ckptdoctor.values.diff_numbers import why_opaque

    if pair.reshaped:
        return Values(Verdict.NOT_COMPARED, why="their shapes differ")
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
    """Return why there is no subtracting tensors made of several: the values of sparse ones come last."""
    if tensor.layout not in _SPARSE:
        return f"a {tensor.subclass or tensor.layout}"
    return "values in other places" if apart != {last} else None


def _measured(found: Difference, wide: Sequence[ByteRun], threads: _Threads) -> dict[int, Values]:
    """Return the distance of the tensors whose bytes differ."""
    sums: dict[int, Numbers] = defaultdict(Numbers)
    for run, numbers in zip(wide, threads.measured(wide), strict=True):
        sums[run.number] += numbers
    return {number: Values(_verdict(found.pairs[number], each), each) for number, each in sums.items()}


def _verdict(pair: Pair, numbers: Numbers) -> Verdict:
    if pair.recast and numbers.rounded:
        return Verdict.ROUNDED
    within = not numbers.beyond and (numbers.changed or pair.recast)
    return Verdict.CLOSE if within else Verdict.CHANGED


class _Threads:
    """Threads that look at runs; each keeps its files and its memory, which is in the cache, until all are done."""

    def __init__(self, found: Difference, a: Source, b: Source, work: Work) -> None:
        self._tolerances = found.rtol, found.atol
        self._sources = a, b
        self._work = work
        self._own = local()
        self._files = ExitStack()
        self.distant = a.distant or b.distant
        self._pool = ThreadPoolExecutor(workers(self.distant), thread_name_prefix="ckptdoctor-diff")

    def __enter__(self) -> _Threads:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        self._files.close()

    def same(self, every: Sequence[ByteRun]) -> Iterator[bool]:
        """Yield for each run in order whether both sides have the same bytes."""
        return self._each(every, lambda run: self._kept("blocks", self._blocks).same(run))

    def measured(self, every: Sequence[ByteRun]) -> Iterator[Numbers]:
        """Yield for each run in order how far both sides are apart."""
        return self._each(every, lambda run: self._kept("meter", self._meter).measure(run))

    def _each(self, every: Sequence[ByteRun], look: Callable[[ByteRun], Told]) -> Iterator[Told]:
        def told(group: list[ByteRun]) -> list[Told]:
            return [look(run) for run in group]

        futures = [self._pool.submit(told, group) for group in batches(every)]
        try:
            for future in futures:
                yield from future.result()
        finally:
            for future in futures:
                future.cancel()

    def _kept(self, name: str, made: Callable[[Files, Files], Kept]) -> Kept:
        """Return what this thread has by a name: made when it is first asked for."""
        if not hasattr(self._own, "files"):
            self._own.files = [self._files.enter_context(Files(each)) for each in self._sources]
        if not hasattr(self._own, name):
            setattr(self._own, name, made(*self._own.files))
        kept: Kept = getattr(self._own, name)
        return kept

    def _blocks(self, a: Files, b: Files) -> Blocks:
        return Blocks(a, b, self._work)

    def _meter(self, a: Files, b: Files) -> DifferenceMeter:
        from ckptdoctor.values.diff_numbers import DifferenceMeter, Tolerance

        return DifferenceMeter(a, b, Tolerance(*self._tolerances), self._work)


def _views(pair: Pair) -> object:
    """Return the views that two tied tensors share on both sides; nothing is tied that has no storage of its own."""
    return view_in_file(pair.a), view_in_file(pair.b)


# ---- finds tensors that have another name and the very same values: by dtype, shape and a hash of the contents


_FEWEST = 16  # elements: a smaller tensor may be the same by chance
_MOST = 20_000  # tensors of one side


def by_contents(found: Difference, a: Source, b: Source, swapped: tuple[bool, bool], work: Work) -> Difference:
    """Return the same with pairs of tensors that only one side has under its name, but both in contents.

    One to one: contents that one side has twice tell nothing. Renamings that were a guess give way to contents.
    """
    removed, added = _without_counterpart(found)
    mine, its = candidates(found)
    if not mine or not its:
        return found
    with Files(a) as files_a, Files(b) as files_b:
        blocks = Blocks(files_a, files_b, work)
        here = _unique(mine, blocks, 0, swapped[0], a.distant)
        there = _unique(its, blocks, 1, swapped[1], b.distant)
    made = [_pair(here[digest], there[digest]) for digest in here if digest in there]
    gone = {id(pair.a) for pair in made}, {id(pair.b) for pair in made}
    kept = [pair for pair in found.pairs if pair.sure or not (id(pair.a) in gone[0] or id(pair.b) in gone[1])]
    held = {id(pair.a) for pair in kept}, {id(pair.b) for pair in kept}
    gone_a, gone_b = (one | other for one, other in zip(gone, held, strict=True))
    return replace(
        found,
        pairs=(*kept, *made),
        removed=tuple([each for each in removed if id(each.tensor) not in gone_a]),
        added=tuple([each for each in added if id(each.tensor) not in gone_b]),
    )


def candidates(found: Difference) -> tuple[list[Single], list[Single]]:
    """Return the tensors of each side whose contents are read: the other side has one of their dtype and shape."""
    removed, added = _without_counterpart(found)
    kinds = {_kind(each) for each in removed} & {_kind(each) for each in added}
    mine, its = ([each for each in side if _kind(each) in kinds][:_MOST] for side in (removed, added))
    return mine, its


def _without_counterpart(found: Difference) -> tuple[list[Single], list[Single]]:
    guesses = [pair for pair in found.pairs if not pair.sure]
    removed = [*found.removed, *[Single(pair.name, pair.a, pair.weights) for pair in guesses]]
    added = [*found.added, *[Single(pair.name_b, pair.b, pair.weights) for pair in guesses]]
    return removed, added


def _pair(one: Single, other: Single) -> Pair:
    values = Values(Verdict.EQUAL)
    return Pair(one.name, other.name, one.tensor, other.tensor, one.weights, by_content=True, values=values)


def _kind(single: Single) -> tuple[str, tuple[int, ...], bool]:
    return single.tensor.dtype.name, single.tensor.shape, single.weights


def _unique(
    singles: Sequence[Single], blocks: Blocks, side: int, swapped: bool, distant: bool
) -> dict[tuple[object, bytes], Single]:
    """Contents that only one tensor has, by its kind and a hash of them."""
    found: dict[tuple[object, bytes], Single | None] = {}
    for each in singles:
        plain = leaves(each.tensor)
        if isinstance(plain, str) or len(plain) != 1 or each.tensor.numel < _FEWEST:
            continue
        data = segments(plain[0], swapped)
        if distant and any(isinstance(segment, Generated) for segment in data):
            continue
        key = _kind(each), blocks.digest(data, side)
        found[key] = None if key in found else each
    return {key: each for key, each in found.items() if each is not None}
