"""Carries out an audit: lists, leaves out what is unchanged, has the rest examined, and writes what comes of it.

All of this goes on at the same time: what was listed is examined while the rest is listed. One process lists and
writes, and between two folders it sees to it that no worker waits.

Whatever ends it, the inventory holds all that was committed, and the same call goes on where it ended: what was
examined has the signature of its files, and is not examined again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from math import inf
from time import monotonic, perf_counter, time

from ckptdoctor.checkpoint import process
from ckptdoctor.checkpoint.progress import phase
from ckptdoctor.errors import UsageError
from ckptdoctor.noun import field, noun, replace
from ckptdoctor.remote.connected import connections_kept
from ckptdoctor.remote.entry import Entry
from ckptdoctor.stores import MODES
from ckptdoctor.stores.engines.engine import Done, Engine
from ckptdoctor.stores.engines.named import engine_named
from ckptdoctor.stores.examine import failed, reference_row
from ckptdoctor.stores.listing import Unit, Walk, unit_of
from ckptdoctor.stores.manifests import Manifest
from ckptdoctor.stores.order import Batch, Waiting
from ckptdoctor.stores.parquet import Exported
from ckptdoctor.stores.recall import Grouped
from ckptdoctor.stores.schema import absolute, identity, open_inventory
from ckptdoctor.stores.values import Part
from ckptdoctor.stores.writer import Writer, writing_into
from ckptdoctor.wording import not_one_of

OUTPUT = "store.db"
_ASKED = 500  # units whose signatures are compared at once
_COMMIT = 1.0  # seconds between two commits, at most, while a batch is examined
_SAMPLED = 20  # one of so many is in the sample of a day
_WAIT = 0.2  # seconds between two looks for Ctrl-C
_LOOK = 0.01  # seconds between two looks at workers, at least, while folders are listed


@noun
class AuditRequest:
    """What to audit: ``stores`` are folders, files or addresses, ``output`` is the inventory.

    ``shard`` (K, N) examines one of N parts, in which every checkpoint is in exactly one. ``jobs`` is the number of
    processes, None for one on each processor. ``deep`` reads every byte: of what was ``changed`` since it was read, of
    a ``sample`` (one in twenty, and others each day), or of ``all``. ``from_inventory``: ``stores`` are manifests that
    object stores wrote of themselves. ``limit_rate`` is how many bytes a second are read at most, 0 for any number.
    """

    stores: tuple[str, ...]
    output: str = OUTPUT
    engine: str = "local"
    jobs: int | None = None
    shard: tuple[int, int] = (1, 1)
    deep: str = ""
    from_inventory: bool = False
    limit_rate: float = 0.0

    def __post_init__(self) -> None:
        if "" in self.stores:  # as a variable of a script that is not set: it does not mean the current folder
            raise UsageError('A store has an empty path. Name its folder, or "." for this one.')
        if self.deep not in ("", *MODES):
            raise UsageError(not_one_of("--deep", self.deep, MODES))
        if self.jobs is not None and self.jobs < 1:
            raise UsageError(f"--jobs must be at least 1: {self.jobs}.")
        if not 0 <= self.limit_rate < inf:
            raise UsageError(f"--limit-rate must not be negative: {self.limit_rate}.")
        pair = isinstance(self.shard, (tuple, list)) and len(self.shard) == 2
        if not pair or not all(isinstance(each, int) for each in self.shard):
            raise UsageError("--shard takes two numbers, such as (3, 8).")
        number, of = self.shard
        if not 1 <= number <= of:
            raise UsageError(f'--shard: "{number}/{of}" is not one of {of} parts, which count from 1.')


@noun
class Audited:
    """What an audit did: so many checkpoints were ``listed``, of which some were ``unchanged`` since the last time.

    ``waiting`` were not examined, because Ctrl-C came; ``cut``: it came before all were listed. ``removed`` are no
    longer there. ``unlisted`` are folders that could not be listed, each with why. ``others`` counts files that are
    called as parts of checkpoints are, next to none that they could belong to. ``exported`` is what was written as
    Parquet, where that was asked for.
    """

    output: str
    stores: tuple[str, ...]
    listed: int
    examined: int
    unchanged: int
    removed: int
    waiting: int
    unlisted: tuple[tuple[str, str], ...]
    others: int
    seconds: float
    engine: str = "local"
    shard: str = ""
    deep: str = ""
    limit_rate: float = 0.0
    exported: Exported | None = None
    cut: bool = False

    @property
    def interrupted(self) -> bool:
        """Whether something was left undone."""
        return self.cut or self.waiting > 0


def audit(request: AuditRequest, engine: Engine | None = None) -> Audited:
    """Bring an inventory up to date with stores.

    Raises UnreadableError where a store cannot be listed or the inventory is not one, WriteError where that cannot be
    written, UsageError for a bad engine.
    """
    started = perf_counter()
    with ExitStack() as opened:
        opened.enter_context(connections_kept())
        listed_in = request.stores if request.from_inventory else ()
        manifests = [opened.enter_context(closing(Manifest(each))) for each in listed_in]
        places: dict[str, Callable[[str], list[Entry]] | None] = {each.store: each.entries for each in manifests}
        places |= {} if manifests else dict.fromkeys(map(absolute, request.stores))
        stores = tuple(places)
        _require_apart(stores)
        opened.enter_context(writing_into(request.output))
        writer = opened.enter_context(closing(Writer(request.output)))
        used = opened.enter_context(closing(engine or engine_named(request.engine, request.jobs)))
        listing = Waiting(os.path.dirname(os.path.abspath(request.output)))
        work = _Audit(writer, used, request, opened.enter_context(closing(listing)))
        number, of = request.shard
        said = f"{number}/{of}" if of > 1 else ""
        key = writer.begin(stores, shard=said, engine=request.engine, deep=request.deep)
        state = "interrupted"
        try:
            work.list_all(places)
            if not work.cut:
                work.examine()
            state = "interrupted" if work.cut or work.left else "complete"
            writer.tidy()
        finally:
            counts = {"listed": work.listed, "examined": work.examined, "unchanged": work.unchanged}
            writer.end(key, state, work.unlisted, removed=work.removed, **counts)
        if work.examined > writer.checkpoints // 2:
            writer.compact()
        return Audited(
            *(request.output, stores, work.listed, work.examined, work.unchanged, work.removed, work.left),
            *(tuple(work.unlisted), work.others, perf_counter() - started),
            *(request.engine, said, request.deep),
            limit_rate=request.limit_rate,
            cut=work.cut,
        )


def _require_apart(stores: tuple[str, ...]) -> None:
    """Raise UsageError where one store is in another: its checkpoints would belong to both."""
    for one in stores:
        for other in stores:
            if one != other and one.startswith(other.rstrip("/\\") + ("/" if "://" in other else os.sep)):
                raise UsageError(f"{one} is in {other}. Name only the outer one.")


@noun(frozen=False, eq=False)
class _Audit:
    """An audit at work, and what it has counted."""

    writer: Writer
    engine: Engine
    request: AuditRequest
    waiting: Waiting
    listed: int = 0
    examined: int = 0
    unchanged: int = 0
    removed: int = 0
    others: int = 0
    unlisted: list[tuple[str, str]] = field(default_factory=list)
    cut: bool = False
    _flying: dict[int, tuple[Batch, int]] = field(default_factory=dict)  # with how many units of each are done
    _again: list[Batch] = field(default_factory=list)
    _number: int = 0  # of the next batch
    _committed: float = field(default_factory=monotonic)
    _looked: float = 0.0
    _parts: dict[str, dict[int, Part]] = field(default_factory=dict)  # of checkpoints that are read in parts
    _given_up: set[str] = field(default_factory=set)
    _day: int = field(default_factory=lambda: int(time() // 86_400))

    @property
    def left(self) -> int:
        """How many wait, or are being examined."""
        return self.waiting.units - self.examined

    def list_all(self, places: dict[str, Callable[[str], list[Entry]] | None]) -> None:
        """Have the changed checkpoints of all stores wait, and the first of them examined. Ctrl-C cuts it off."""
        try:
            for store, listed in places.items():
                self._list_store(store, listed)
            self.writer.commit()
        except KeyboardInterrupt:
            if not process.is_ours():
                raise
            self.cut = True

    def _list_store(self, store: str, listed: Callable[[str], list[Entry]] | None) -> None:
        """Have the changed checkpoints of a store wait, and forget those that are gone."""
        with phase("listing", 0, "checkpoints") as told:

            def heard() -> None:
                told.go_on()
                self._look_around()

            memory = _Memory(self, absolute(store), told.advance) if self.request.shard[1] == 1 else None
            walk = Walk(store, heard, listed, memory)
            for some in _together(self._of_shard(walk.units())):
                before = self.waiting.units
                paths = [each.candidate.path for each in some] if self.request.deep else []
                deep = {each for each in paths if self.is_read(identity(each))}
                for each in self.writer.changed(some, deep, again=self.request.deep == "all"):
                    self.waiting.add(each, deep=each.candidate.path in deep)
                self.listed += len(some)
                self.unchanged += len(some) - (self.waiting.units - before)
                told.advance(len(some))
                self._look_around()
        folders = [folder for folder, _ in walk.unlisted]
        self.removed += self.writer.forget_unseen(walk.store, folders, self.request.shard)
        links = [reference_row(each.run, each.source, each.kind, each.target) for each in walk.links]
        self.writer.write_links(walk.store, links)
        self.unlisted += walk.unlisted
        self.others += walk.others

    def is_read(self, key: int) -> bool:
        """Return whether every byte of a checkpoint is read in this audit."""
        if self.request.deep != "sample":
            return bool(self.request.deep)
        return (key + self._day) % _SAMPLED == 0

    def _of_shard(self, units: Iterator[Unit]) -> Iterator[Unit]:
        number, of = self.request.shard
        if of == 1:
            return units
        return (each for each in units if identity(each.candidate.path) % of == number - 1)

    def _look_around(self) -> None:
        """Between two folders: write what was done, and have workers go on with what waits by now."""
        now = monotonic()
        if self.left and now - self._looked >= _LOOK:
            self._looked = now
            with process.patience():
                self._hand_out(more=True)
                self._take_in(0)
                self._hand_out(more=True)

    def examine(self) -> None:
        """Have everything examined that waits, and write what comes of it. Ctrl-C ends it between two checkpoints."""
        before = self.examined
        with phase("examining", self.left, "checkpoints") as told, process.patience():
            self._hand_out()
            while self._flying and not process.wants_end():
                self._take_in(_WAIT)
                told.reach(self.examined - before)
                self._hand_out()
            self.writer.commit()

    def _hand_out(self, *, more: bool = False) -> None:
        """Submit as many batches as the engine should have; ``more`` units are still added."""
        while len(self._flying) < self.engine.width:
            batch = self._again.pop() if self._again else self._next(more)
            if batch is None:
                break
            if self._is_given_up(batch):
                continue
            self._flying[self._number] = batch, 0
            self.engine.submit(self._number, batch)
            self._number += 1

    def _next(self, more: bool) -> Batch | None:
        workers = self.engine.workers
        rate = self.request.limit_rate / workers
        return self.waiting.batch(self.engine.width, rate, split=workers > 1, more=more)

    def _take_in(self, seconds: float) -> None:
        """Write what was done; wait so many seconds for it at most."""
        if not self._flying:
            return
        for done in self.engine.completed(seconds):
            self._again += self._written(done)
            if done.over or monotonic() - self._committed > _COMMIT:
                self.writer.commit()
                self._committed = monotonic()

    def _written(self, done: Done) -> list[Batch]:
        """Write what was done of a batch; return what is to be examined again where its rest failed."""
        batch, at = self._flying[done.batch]
        more: list[Batch] = []
        for each in done.rows:
            if batch.part is not None:
                more += self._put_together(batch, each)
                continue
            self.writer.write(each)
            self.examined += 1
        at += len(done.rows)
        self._flying[done.batch] = batch, at
        if not done.over:
            return more
        del self._flying[done.batch]
        rest = replace(batch, units=batch.units[at:])
        if not done.failure or not rest.units or self._is_given_up(batch):
            return more
        if len(rest.units) > 1:
            return list(rest.halves)
        if not batch.again:  # somebody may have killed it for another reason
            return [replace(rest, again=True)]
        self.writer.write(failed(unit_of(rest.units[0]), f"It could not be examined: {done.failure}."))
        self.examined += 1
        self._given_up.add(_path(rest))
        return []

    def _put_together(self, batch: Batch, read: Part) -> list[Batch]:
        """Keep what was read of a part of a checkpoint; return how it is examined once all parts are there."""
        assert batch.part is not None
        number, of = batch.part
        found = self._parts.setdefault(_path(batch), {})
        found[number] = read
        if len(found) < of:
            return []
        del self._parts[_path(batch)]
        return [replace(batch, part=None, again=False, read=tuple([found[each] for each in range(of)]))]

    def _is_given_up(self, batch: Batch) -> bool:
        """Return whether it is a part of a checkpoint of which another part could not be read."""
        return batch.part is not None and _path(batch) in self._given_up


def _together(units: Iterator[Unit]) -> Iterator[list[Unit]]:
    """Yield as many as are asked about at once; fewer where they come slowly, since workers wait for them."""
    some: list[Unit] = []
    began = monotonic()
    for each in units:
        some.append(each)
        if len(some) >= _ASKED or monotonic() - began >= _LOOK:
            yield some
            some, began = [], monotonic()
    if some:
        yield some


def _path(batch: Batch) -> str:
    """Return the path of its only checkpoint."""
    return unit_of(batch.units[0]).candidate.path


@noun(frozen=False, eq=False)
class _Memory:
    """What the inventory knows of the folders of a store; counts the checkpoints in those that have not changed."""

    work: _Audit
    store: str
    told: Callable[[int], None]

    def recall(self, folder: str) -> Grouped | None:
        """Return what became of a folder the last time, None where that is not known."""
        return self.work.writer.recall(folder)

    def holds(self, known: Grouped) -> bool:
        """Return whether its checkpoints need not be examined again."""
        deep = self.work.request.deep
        if not self.work.writer.holds(known, self.work.is_read if deep else None, again=deep == "all"):
            return False
        number = len(known.checkpoints)
        self.work.listed += number
        self.work.unchanged += number
        self.told(number)
        return True

    def keep(self, folder: str, found: Grouped) -> None:
        """Keep what became of a folder."""
        self.work.writer.keep(self.store, folder, found)


def merge(databases: tuple[str, ...], output: str) -> Audited:
    """Put what several inventories hold into one, of the same checkpoint what the last one says.

    Nothing is examined. Raises UnreadableError for what is not an inventory.
    """
    started = perf_counter()
    for each in databases:
        open_inventory(each).close()  # before anything is written
    with writing_into(output), closing(Writer(output)) as writer:
        for each in databases:
            if os.path.abspath(each) != os.path.abspath(output):
                writer.take_over(each)
        writer.tidy()
        writer.compact()
        number = writer.checkpoints
    return Audited(output, (), number, 0, 0, 0, 0, (), 0, perf_counter() - started)
