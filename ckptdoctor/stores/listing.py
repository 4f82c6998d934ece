"""Walks a store and groups its files into units of work: each is one checkpoint, a file or a folder.

What is a checkpoint is decided as ``latest`` decides it (``runs.grouping``), in every folder of the store. What is left
over then and ``check`` would examine, such as the final weights of a run, is a unit by itself. Links into the store are
references to what they name, and are not examined twice.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ckptdoctor.errors import UnreadableError
from ckptdoctor.examine.paths import PICKLES, SUFFIXES, begins_like_one
from ckptdoctor.noun import noun
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.remote.entry import Entry
from ckptdoctor.runs import grouping, kinds
from ckptdoctor.runs.grouping import Candidate
from ckptdoctor.runs.kinds import Kind
from ckptdoctor.runs.listing import entries, entries_unless_file
from ckptdoctor.runs.step import Numbers
from ckptdoctor.sealing.manifest import SUFFIX as SEAL
from ckptdoctor.stores.recall import Grouped, Memory, hash_of
from ckptdoctor.stores.schema import absolute, identity

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_OTHERS = frozenset({".gguf"})  # that check examines where it is given them by name
# suffixes of what is not a checkpoint, so that its beginning is not asked
_TEXTS = frozenset(
    {".json", ".jsonl", ".txt", ".md", ".py", ".yaml", ".yml", ".toml", ".log", ".csv", ".tsv", ".sh", ".html", ".lock"}
    | {".png", ".jpg", ".jpeg", ".gif", ".mp4", ".wav", ".parquet", ".arrow", ".npy", ".model", ".out", ".err"}
)  # fmt: skip
_COMPANIONS = frozenset({"config.json", "adapter_config.json"})  # files next to weights that say what they are
_BLOCK = 512  # bytes of st_blocks, on every system
_HUB = {"blobs", "snapshots"}  # folders of a model in the cache of huggingface_hub

# folder, name, size, mtime_ns, device, inode, etag, bytes on disk
File = tuple[str, str, int, int, "int | None", "int | None", "str | None", "int | None"]


@noun
class Unit:
    """One checkpoint as its names show it, with all its files; ``signature`` changes when one of them does."""

    candidate: Candidate
    run: str
    store: str
    files: tuple[File, ...]
    owner: str
    signature: int

    @property
    def bytes(self) -> int:
        """Of all its files."""
        return sum(each[2] for each in self.files)

    @property
    def plain(self) -> tuple[Any, ...]:
        """The same as tuples, texts and numbers, which go to other processes and into files."""
        one = self.candidate
        numbers = (one.numbers.template, one.numbers.step, one.numbers.epoch, one.numbers.others, one.numbers.version)
        candidate = (one.path, one.name, one.folder, one.modified, one.series, numbers, one.version, one.unfinished)
        return (*candidate, one.optimizers), self.run, self.store, self.files, self.owner, self.signature


def unit_of(plain: tuple[Any, ...]) -> Unit:
    """Return the unit that ``Unit.plain`` was of."""
    (path, name, folder, modified, series, numbers, *rest), *others = plain
    return Unit(Candidate(path, name, folder, modified, series, Numbers(*numbers), *rest), *others)


@noun
class Link:
    """What names a checkpoint without being one: a link, or a file of a run such as DeepSpeed's ``latest``."""

    run: str
    source: str
    kind: str
    target: str


class Walk:
    """The walk through one store. Afterwards ``links``, ``unlisted`` and ``others`` say what else there was.

    ``unlisted`` are folders that could not be listed, each with why; ``others`` counts files that are called as parts
    of checkpoints are, next to none that they could belong to. Folders in which ``memory`` knows that nothing has
    changed are left out.
    """

    def __init__(
        self,
        store: str,
        heard: Callable[[], None] = lambda: None,
        listed: Callable[[str], list[Entry]] | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.store = absolute(store)
        self.links: list[Link] = []
        self.unlisted: list[tuple[str, str]] = []
        self.others = 0
        self._last: tuple[str, list[Entry]] = ("", [])
        self._heard = heard  # told for each folder
        self._listed = listed  # what says what is in a folder, instead of the store
        self._memory = memory
        self._separator = "/" if is_address(self.store) else os.sep
        self._ahead = _Ahead(is_address(self.store) and listed is None)
        self._real = "" if is_address(self.store) else os.path.realpath(self.store)

    def units(self) -> Iterator[Unit]:
        """Yield the checkpoints, folder by folder. Raises UnreadableError where the store itself cannot be listed."""
        try:
            yield from self._all()
        finally:
            self._ahead.close()

    def _all(self) -> Iterator[Unit]:
        found = entries_unless_file(self.store) if self._listed is None else [*self._listed(self.store)]
        if found is None:
            folder, _, name = self.store.rpartition("/" if is_address(self.store) else os.sep)
            found = [each for each in entries(folder or os.sep) if each.name == name]
            yield from (self._unit(grouping.alone(each.path, folder=False), folder, [each]) for each in found)
            return
        yield from self._visit(self.store, found)

    def _entries(self, path: str) -> list[Entry]:
        """Return what is in a folder; of one that was asked about last, without another request."""
        if path != self._last[0]:
            ask = self._listed or (self._ahead.entries if self._ahead.used else entries)
            self._last = path, ask(path)
        return list(self._last[1])

    # ---- one folder

    def _below(self, folder: str) -> Iterator[Unit]:
        try:
            found = self._entries(folder)
        except UnreadableError as error:
            self.unlisted.append((folder, error.message))
            return
        yield from self._visit(folder, found)

    def _visit(self, folder: str, found: list[Entry]) -> Iterator[Unit]:
        self._heard()
        found.sort(key=_name)
        with self._ahead.of([each.path for each in found if each.folder and not each.name.startswith(".")]):
            now = Grouped(hash_of(0, (self.store, *map(_told, found))))
            known = self._memory.recall(folder) if self._memory is not None else None
            if known is not None and self._is_same(known, now, found):
                now = known
            else:
                links, others, unlisted = len(self.links), self.others, len(self.unlisted)
                yield from self._grouped(folder, found, now)
                now.links += [(each.run, each.source, each.kind, each.target) for each in self.links[links:]]
                now.others = self.others - others
                if self._memory is not None and not now.unsure and len(self.unlisted) == unlisted:
                    self._memory.keep(folder, now)
            for at in now.below:
                yield from self._below(found[at].path)

    def _is_same(self, known: Grouped, now: Grouped, found: list[Entry]) -> bool:
        """Return whether all is as it was; then its links and others are noted."""
        if known.listed != now.listed:
            return False
        unlisted, nested = len(self.unlisted), 0
        for parts in known.parts:
            files, _ = self._files([found[at] for at in parts])
            nested = hash_of(nested, _compared(files))
        if len(self.unlisted) > unlisted:
            del self.unlisted[unlisted:]  # it is asked again, and said then
            return False
        if nested != known.nested or self._memory is None or not self._memory.holds(known):
            return False
        self.links += [Link(*each) for each in known.links]
        self.others += known.others
        return True

    def _grouped(self, folder: str, found: list[Entry], now: Grouped) -> Iterator[Unit]:
        """Yield the checkpoints that are directly in a folder, or are the folder, and note what becomes of it."""
        places = {each.path: at for at, each in enumerate(found)}
        inner = {each.name for each in found if each.folder}
        if grouping.is_one(found):
            mine = [each for each in found if not each.folder or kinds.belongs(each.name)]
            above = os.path.dirname(folder) if folder != self.store else folder
            yield self._noted(grouping.alone(folder, folder=True), above, mine, now, places)
            found = [each for each in found if each.folder and each not in mine]
        run, prefix = self._run_of(folder)
        visible = [each for each in found if not each.name.startswith(".") and not self._is_link(each, run)]
        candidates = grouping.in_folder(visible, prefix)
        for tracker, named in grouping.named_last(visible, candidates):
            self.links.append(Link(run, tracker.path, "latest", named.path))
        by_path = {each.path: each for each in visible}
        taken: set[str] = set()
        for candidate in candidates:
            if not candidate.folder:
                paths = (candidate.path, *candidate.optimizers, f"{candidate.path}{SEAL}")
                mine = [by_path[path] for path in paths if path in by_path]
                taken.update(each.path for each in mine)
                yield self._noted(candidate, run, mine, now, places)
            elif self._is_unit(candidate):
                taken.add(candidate.path)
                yield self._noted(candidate, run, [by_path[candidate.path]], now, places)
            else:
                now.unsure = True
        for each in visible:
            if each.path in taken:
                continue
            if each.folder:
                if not (each.name == "blobs" and inner >= _HUB):
                    now.below.append(places[each.path])
            elif self._is_examined(each):
                beside = (*_COMPANIONS, f"{each.name}{SEAL}")
                mine = [each, *[one for one in visible if one.name in beside and not one.folder]]
                yield self._noted(self._single(each, prefix), run, mine, now, places)

    def _noted(self, candidate: Candidate, run: str, mine: list[Entry], now: Grouped, places: dict[str, int]) -> Unit:
        unit = self._unit(candidate, run, mine)
        now.add(identity(candidate.path), unit.signature)
        parts = [places[each.path] for each in mine if each.folder]
        if parts:
            direct = {each.path for each in mine if not each.folder}
            files = [each for each in unit.files if f"{each[0]}{self._separator}{each[1]}" not in direct]
            now.parts.append(parts)
            now.nested = hash_of(now.nested, _compared(files))
        return unit

    def _run_of(self, folder: str) -> tuple[str, str]:
        """Return the run that checkpoints in a folder belong to, and how far it is below that."""
        way = folder[len(self.store) :].replace(os.sep, "/").strip("/")
        run = grouping.run_of(way)
        prefix = way[len(run) :].strip("/")
        return self._path(run), f"{prefix}/" if prefix else ""

    def _path(self, way: str) -> str:
        if is_address(self.store):
            return f"{self.store}/{way}" if way else self.store
        return os.path.join(self.store, *way.split("/")) if way else self.store

    def _single(self, entry: Entry, prefix: str) -> Candidate:
        one = grouping.alone(entry.path, folder=False)
        name = f"{prefix}{entry.name}"
        return Candidate(entry.path, name, False, entry.modified, name, one.numbers)

    def _is_unit(self, candidate: Candidate) -> bool:
        """Return whether a folder that is called as checkpoints are is one, and does not only hold some."""
        if candidate.unfinished:
            return True
        try:
            names = frozenset([f"{each.name}/" if each.folder else each.name for each in self._entries(candidate.path)])
            if kinds.kind_of(names) is not Kind.FOLDER or kinds.has_weights(names):
                return True
            parts = kinds.parts_of(candidate)
        except UnreadableError:
            return True  # the examination says why
        return bool(parts.unfinished or parts.inner) or grouping.is_checkpoint(candidate.path)

    def _is_examined(self, entry: Entry) -> bool:
        name = entry.name
        if grouping.is_part(name) and not kinds.has_weights([name]) and "-of-" not in name:
            self.others += 1
            return False
        suffix = os.path.splitext(name)[1].lower()
        if suffix in SUFFIXES or suffix in PICKLES or suffix in _OTHERS:
            return True
        local = entry.status is not None and suffix not in _TEXTS and entry.size > 0
        return local and begins_like_one(entry.path)

    def _is_link(self, entry: Entry, run: str) -> bool:
        """Return whether it only names what the walk meets elsewhere, or is a folder that is not followed."""
        if not entry.link:
            return False
        target = os.path.realpath(entry.path)
        inside = target.startswith(self._real.rstrip(os.sep) + os.sep)
        if inside and f"{os.sep}blobs{os.sep}" in target and f"{os.sep}snapshots{os.sep}" in entry.path:
            return False
        if inside:
            self.links.append(
                Link(run, entry.path, "link", os.path.join(self.store, target[len(self._real) :].lstrip(os.sep)))
            )
        elif entry.folder:
            self.unlisted.append((entry.path, f"It is a link to {target}, outside of the store. Name that as well."))
        return inside or entry.folder

    # ---- one unit

    def _unit(self, candidate: Candidate, run: str, mine: list[Entry]) -> Unit:
        files, owner = self._files(mine)
        said = f"{_compared(files)}{candidate.unfinished}".encode("utf-8", "surrogatepass")
        digest = blake2b(said, digest_size=8).digest()
        return Unit(candidate, run, self.store, tuple(files), owner, int.from_bytes(digest, "big") >> 1)

    def _files(self, mine: list[Entry]) -> tuple[list[File], str]:
        found: list[File] = []
        owner = ""
        waiting = list(mine)
        while waiting:
            each = waiting.pop()
            owner = owner or (_user(each.status.st_uid) if each.status is not None else "")
            if not each.folder:
                found.append(_file(each))
                continue
            try:
                waiting += self._entries(each.path)
            except UnreadableError as error:
                self.unlisted.append((each.path, error.message))
        found.sort()
        return found, owner


def _name(entry: Entry) -> str:
    return entry.name


def _told(entry: Entry) -> tuple[Any, ...]:
    """Return what decides what an entry is: of folders their names, since what is in them is asked of themselves."""
    link = os.path.realpath(entry.path) if entry.link else ""
    if entry.folder:
        return entry.name, link
    status = entry.status
    if status is None:
        return entry.name, entry.size, entry.etag or entry.modified
    return entry.name, entry.size, status.st_mtime_ns, status.st_ino, link


def _compared(files: list[File]) -> list[tuple[Any, ...]]:
    """Return what is compared of files. An ETag names bytes; times are told less exactly by some."""
    return [(name, size, etag or mtime, inode) for _, name, size, mtime, _, inode, etag, _ in files]


def _file(entry: Entry) -> File:
    folder = entry.path[: -len(entry.name) - 1]
    status = entry.status
    if status is None:
        return folder, entry.name, entry.size, int(entry.modified * 1e9), None, None, entry.etag or None, None
    blocks = status.st_blocks * _BLOCK if hasattr(status, "st_blocks") else None
    return folder, entry.name, entry.size, status.st_mtime_ns, status.st_dev, status.st_ino, None, blocks


@cache
def _user(number: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):  # Windows has no such list, and containers have users without names
        return str(number)


# ---- folders on another machine are listed before it is their turn, several at once, since answers take a while


_AT_ONCE = 16  # listings of each depth that were asked for and not taken
_LATE = 0.01  # seconds that listings take one by one, from which on it is worth it,
_IN_A_ROW = 6  # where so many in a row do
_ENTRIES = 20_000  # that these hold together, as far as the last one tells


class _Ahead:
    """Listings of the folders that a walk comes to next. Where it is not ``used``, none are asked for."""

    def __init__(self, used: bool) -> None:
        self.used = used
        self._pool: ThreadPoolExecutor | None = None
        self._coming: list[deque[str]] = []  # by depth
        self._asked: list[dict[str, Future[list[Entry]]]] = []
        self._room = _AT_ONCE
        self._late = 0  # in a row

    @contextmanager
    def of(self, folders: Iterable[str]) -> Iterator[None]:
        """Ask for these meanwhile, in this order, as the walk takes them."""
        if not self.used:
            yield
            return
        self._coming.append(deque(folders))
        self._asked.append({})
        self._ask()
        try:
            yield
        finally:
            self._coming.pop()
            for each in self._asked.pop().values():
                each.cancel()

    def _ask(self) -> None:
        coming, asked = self._coming[-1], self._asked[-1]
        while self._late >= _IN_A_ROW and coming and len(asked) < self._room:
            if self._pool is None:
                from concurrent.futures import ThreadPoolExecutor

                self._pool = ThreadPoolExecutor(_AT_ONCE)
            path = coming.popleft()
            asked[path] = self._pool.submit(entries, path)

    def entries(self, path: str) -> list[Entry]:
        """Return what is in a folder. Raises UnreadableError where it cannot be listed."""
        asked = next((each.pop(path) for each in self._asked if path in each), None)
        if asked is None:
            started = perf_counter()
            found = entries(path)
            late = self._late >= _IN_A_ROW or perf_counter() - started > _LATE
            self._late = self._late + 1 if late else 0
            return found
        found = asked.result()
        self._room = max(1, min(_AT_ONCE, _ENTRIES // max(1, len(found))))
        self._ask()
        return found

    def close(self) -> None:
        """Take back what was not begun."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
