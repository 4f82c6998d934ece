"""Every value of a checkpoint is read once by several threads; memory does not grow with the file.

A thread takes the next piece of work in the order of the file: some small tensors, or a part of a large one. NumPy
leaves the interpreter to the other threads while it computes, and what the parts of a tensor say is put together in
their order, so that the result does not depend on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Event, Lock, Thread

import numpy as np

from ckptdoctor.casting.arrays import HALVES, Array, widened
from ckptdoctor.checkpoint import Checkpoint, KeyPath, Source, Tensor
from ckptdoctor.checkpoint.progress import Work
from ckptdoctor.checkpoint.tensor import is_contiguous
from ckptdoctor.errors import CkptDoctorError, StoppedError
from ckptdoctor.loading.tensors import COMPRESSED_LAYOUTS
from ckptdoctor.noun import field, noun, replace
from ckptdoctor.values.chunks import ChunkMeasure
from ckptdoctor.values.distinct import distinct, shown_by
from ckptdoctor.values.flat_chunks import CHUNK, CHUNK_BYTES, SCAN_BYTES, Strip, strips
from ckptdoctor.values.float8_counts import is_counted
from ckptdoctor.values.partial import Partial
from ckptdoctor.values.regions import UnreadError
from ckptdoctor.values.statistics import TensorValues, Unread, Values
from ckptdoctor.values.storage_checks import StorageChecks
from ckptdoctor.values.summing_up import Narrowing, duplicated_rows, step_of, summed_up
from ckptdoctor.values.tensor_bytes import TensorBytes

_PART = 16 * CHUNK  # values of a large tensor that a thread takes at a time
_GRACE = 2.0  # seconds that interrupted threads have for their chunk
_BATCH = 1 << 20  # values that are worth handing to a thread
_MOST_THREADS = 8  # memory is not faster than so many


def examine_values(
    checkpoint: Checkpoint,
    source: Source,
    work: Work | None = None,
    *,
    only_finite: bool = False,
    sums: bool = True,
    threads: int | None = None,
    checks: StorageChecks | None = None,
) -> Values:
    """Read the values of all tensors. ``work`` says how far that is after each chunk, and may end it there.

    Without ``sums`` all is worked out that the rules of ckptdoctor ask for, in a third of the time: see
    ``TensorValues``. With ``only_finite`` it is no more than the extremes, and the numbers of NaNs and infinities.
    What cannot be looked at is ``skipped``, with the reason. ``checks`` are told the bytes.
    """
    numbers = TensorBytes(checkpoint, source, checks)
    examination = _Examination(checkpoint, numbers, work or Work(), only_finite, sums and not only_finite)
    overs = [Event() for _ in range(threads or _threads())]
    workers = [Thread(target=examination.examine, args=(over,), daemon=True) for over in overs]
    try:
        for worker in workers:
            worker.start()
        for over in overs:
            over.wait()
    except BaseException:  # Ctrl-C: the threads end after their chunk
        examination.stopped = True
        for over, worker in zip(overs, workers, strict=True):
            over.wait(_GRACE if worker.ident is not None else 0)
        raise
    finally:
        examination.bytes.close()
    if examination.error is not None:
        raise examination.error
    return examination.values()


def _threads() -> int:
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        cores = os.cpu_count() or 1
    return min(_MOST_THREADS, cores)


@noun(frozen=False)
class _Measured:
    """One tensor on its way: what is known of it, and how many pieces of work are still to come."""

    tensor: Tensor
    narrowing: Narrowing
    partial: Partial = field(default_factory=Partial)
    weight: int = 1
    step: int = 1
    rows: int | None = None
    begun: int = 0  # pieces of work
    waiting: dict[int, Partial] = field(default_factory=dict)  # what is known of pieces that others come before
    done: int = 0
    planned: bool = False

    def add(self, number: int, partial: Partial) -> None:
        """Count in what a piece of work showed, once all before it are."""
        self.waiting[number] = partial
        while self.done in self.waiting:
            self.partial.add(self.waiting.pop(self.done))
            self.done += 1


@noun
class _Work:
    """The values ``start`` to ``stop`` of a strip, as the piece of this number of its tensor."""

    measured: _Measured
    number: int
    strip: Strip
    start: int
    stop: int


class _Examination:
    """The state that the threads share."""

    def __init__(self, checkpoint: Checkpoint, numbers: TensorBytes, work: Work, only_finite: bool, sums: bool) -> None:
        self.checkpoint = checkpoint
        self.bytes = numbers
        self.work = work
        self.only_finite = only_finite
        self.sums = sums
        self.lock = Lock()
        self.batches = self._batches()
        self.found: dict[int, TensorValues] = {}
        self.unread: dict[int, str] = {}
        self.stray: dict[int, str] = {}
        self.done = 0
        self.stopped = False
        self.error: BaseException | None = None

    def examine(self, over: Event) -> None:
        """Do the work of a thread, until nothing is left; then it is ``over``.

        That is told by an event: where Ctrl-C interrupts ``Thread.join``, Python takes the thread for one that ended.
        """
        try:
            with np.errstate(all="ignore"):  # NaN and what is too large is what is looked for
                self._examine_batches()
        except BaseException as error:  # noqa: BLE001  carried over to the thread that waits
            self.error = error
            self.stopped = True
        finally:
            over.set()

    def _examine_batches(self) -> None:
        measure = ChunkMeasure()
        while not self.stopped:
            with self.lock:
                batch = next(self.batches, None)
            if batch is None:
                return
            for piece in batch:
                if self.stopped:
                    return
                self._examine(piece, measure)

    def _batches(self) -> Iterator[list[_Work]]:
        """Pieces of work, small ones together."""
        batch: list[_Work] = []
        size = 0
        for measured in map(self._begun, distinct(self.checkpoint.tensors)):
            for strip in self._strips(measured):
                step = _PART if strip.divisible else max(1, strip.count)
                for at in range(0, strip.count, step):
                    stop = min(strip.count, at + step)
                    batch.append(_Work(measured, measured.begun, strip, at, stop))
                    measured.begun += 1
                    size += stop - at
                    if size >= _BATCH:
                        yield batch
                        batch, size = [], 0
            measured.planned = True
            self._finish(measured)
        yield batch

    def _begun(self, tensor: Tensor) -> _Measured:
        unasked = self.only_finite or (tensor.dtype.name in HALVES and not self.sums)
        return _Measured(tensor, Narrowing("" if unasked else tensor.dtype.name))

    def _strips(self, measured: _Measured) -> list[Strip]:
        try:
            several = self.sums and not is_counted(measured.tensor.dtype.name)
            found = list(strips(measured.tensor, self.bytes, CHUNK_BYTES if several else SCAN_BYTES))
        except (UnreadError, CkptDoctorError) as error:
            self._leave_out(measured, error)
            return []
        measured.weight = found[0].weight if found else 1
        measured.step = step_of(sum(each.count for each in found))
        if len({each.weight for each in found}) > 1:
            self._leave_out(measured, UnreadError("its pieces are expanded in different ways"))
            return []
        return found

    def _leave_out(self, measured: _Measured, error: Exception) -> None:
        self.unread[id(measured.tensor)] = getattr(error, "message", str(error))

    def _examine(self, work: _Work, measure: ChunkMeasure) -> None:
        measured, strip, at = work.measured, work.strip, work.start
        partial = Partial()
        rows: int | None = None
        try:
            for chunk in strip.read(work.start, work.stop):
                self._add(measured, chunk, strip, at, partial, measure)
                rows = self._rows(measured.tensor, chunk) if self.sums else None
                at += chunk.size
                if not self._go_on(chunk.size * strip.width):
                    return
            if partial.sample:  # many small pieces of memory would keep what lay between them from being freed
                partial.sample = [widened(np.concatenate(partial.sample), strip.dtype)]
        except CkptDoctorError as error:
            self._leave_out(measured, error)
            return
        with self.lock:
            measured.add(work.number, partial)
            measured.rows = rows
        self._finish(measured)

    def _add(
        self, measured: _Measured, chunk: Array, strip: Strip, at: int, partial: Partial, measure: ChunkMeasure
    ) -> None:
        if self.sums:
            measure.add_all(chunk, strip.dtype, strip.chunk, partial)
        else:
            measure.scan(chunk, strip.dtype, partial)
        if self.only_finite:
            return
        if measured.narrowing.left:
            measured.narrowing.add(chunk, strip.dtype)
        partial.sample.append(chunk[-at % measured.step :: measured.step].copy())

    def _rows(self, tensor: Tensor, chunk: Array) -> int | None:
        """Return the rows that are there again, of a tensor that is one chunk."""
        whole = chunk.size == tensor.numel and tensor.layout == "strided" and is_contiguous(tensor)
        return duplicated_rows(chunk, tensor.shape) if whole and not tensor.chunks else None

    def _go_on(self, read: int) -> bool:
        with self.lock:
            self.done += read
            try:
                self.work.reach(self.done)
            except StoppedError:  # what has been read counts
                self.stopped = True
        return not self.stopped

    def _finish(self, measured: _Measured) -> None:
        """Sum up a tensor whose last piece is done; where two threads think so, they find the same."""
        if measured.planned and measured.done == measured.begun and id(measured.tensor) not in self.unread:
            self._require_indices(measured)
            fits = measured.narrowing.result(measured.partial)
            found = summed_up(measured.partial, measured.weight, fits, measured.rows, sums=self.sums)
            self.found[id(measured.tensor)] = found

    def _require_indices(self, measured: _Measured) -> None:
        """Note where the indices of a sparse tensor do not fit it."""
        tensor = measured.tensor
        if tensor.layout not in SPARSE or self.only_finite:
            return
        try:
            trouble = stray(tensor, self.bytes)
        except (UnreadError, CkptDoctorError) as error:
            self._leave_out(measured, error)
            return
        if trouble:
            self.stray[id(tensor)] = trouble

    def values(self) -> Values:
        """Return the result for all tensors: tied ones have the values of the first of them."""
        first = {shown_by(tensor): tensor for tensor in reversed(self.checkpoint.tensors)}
        tensors: dict[KeyPath, TensorValues] = {}
        skipped = []
        for tensor in self.checkpoint.tensors:
            same = id(first[shown_by(tensor)])
            if same in self.unread:
                skipped.append(Unread(tensor.path, self.unread[same]))
            elif same in self.found:
                tensors[tensor.path] = self.found[same]
        wrong = [Unread(each.path, self.stray[id(each)]) for each in self.checkpoint.tensors if id(each) in self.stray]
        return Values(self.checkpoint, tensors, tuple(skipped), self.done, not self.stopped, tuple(wrong))


# ---- whether the indices of sparse tensors lie inside of them: torch does not look unless it is told to
#
# Source: ``torch._utils._validate_loaded_sparse_tensors``, and the invariants of ``torch.sparse``. Indices are read in
# chunks, so that memory does not grow with the file.


SPARSE = ("sparse_coo", *COMPRESSED_LAYOUTS)
_BY_ROW = ("sparse_csr", "sparse_bsr")
_BLOCKS = ("sparse_bsr", "sparse_bsc")


def stray(tensor: Tensor, source: TensorBytes) -> str:
    """Return the fault in the indices of a sparse tensor; "" where there is none. Raises what reading them raises."""
    troubles = _coo(tensor, source) if tensor.layout == "sparse_coo" else _compressed(tensor, source)
    return next(troubles, "")


def _coo(tensor: Tensor, source: TensorBytes) -> Iterator[str]:
    """Yield the fault of indices of COO, which have a row for each sparse dimension."""
    indices = tensor.parts[0]
    if len(indices.shape) != 2 or indices.shape[0] > len(tensor.shape):
        yield f"its indices have the shape {list(indices.shape)}"
        return
    for dim in range(indices.shape[0]):
        start = indices.offset + dim * indices.stride[0]
        row = replace(indices, shape=indices.shape[1:], stride=indices.stride[1:], offset=start)
        yield from _outside(row, source, tensor.shape[dim], f"dimension {dim}")


def _compressed(tensor: Tensor, source: TensorBytes) -> Iterator[str]:
    """Yield the first entry of each row or column, and the column or row of each entry."""
    lines, others, values = tensor.parts
    height, width = values.shape[-2:] if tensor.layout in _BLOCKS and len(values.shape) > 2 else (1, 1)
    rows, columns = tensor.shape[-2] // max(1, height), tensor.shape[-1] // max(1, width)
    line, other = ("rows", "columns") if tensor.layout in _BY_ROW else ("columns", "rows")
    count, limit = (rows, columns) if tensor.layout in _BY_ROW else (columns, rows)
    if not lines.shape or lines.shape[-1] != count + 1:
        yield f"it has {count:,} {line}, but gives starts for another number"
        return
    entries = others.shape[-1] if others.shape else 0
    yield from _outside(lines, source, entries + 1, f"where its {line} begin")
    if len(lines.shape) == 1 and not _is_rising(lines, source, entries):
        yield f"its {line} do not follow one another"
    yield from _outside(others, source, limit, f"its {other}")


def _outside(indices: Tensor, source: TensorBytes, limit: int, what: str) -> Iterator[str]:
    for chunk in _chunks(indices, source):
        for index in (int(chunk.min()), int(chunk.max())):
            if not 0 <= index < limit:
                yield (
                    f"the index {index:,} of {what} is not below {limit:,}"
                    if index >= 0
                    else (f"the index {index:,} of {what} is negative")
                )


def _is_rising(lines: Tensor, source: TensorBytes, entries: int) -> bool:
    """Return whether the beginnings go from nothing to all entries, and never back."""
    last = 0
    for number, chunk in enumerate(_chunks(lines, source)):
        first = int(chunk[0])
        if first < last or (not number and first) or not bool((chunk[1:] >= chunk[:-1]).all()):
            return False
        last = int(chunk[-1])
    return last == entries


def _chunks(indices: Tensor, source: TensorBytes) -> Iterator[Array]:
    """Yield the indices that are not empty, in chunks."""
    for strip in strips(indices, source):
        for chunk in strip.read(0, strip.count):
            if chunk.size:
                yield chunk
