"""Carries a plan out: what may go is looked at once more, and moved into the trash of its store.

Right before, the stores are listed again: what has come to be named since the audit stays (``again``). What stays in
the stead of what goes is read whole, every byte and value of it, and every file that goes must be the one that was
examined: by its size, time and inode. Whatever has changed since the audit stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial

from ckptdoctor.errors import CkptDoctorError, RefusedError, WriteError
from ckptdoctor.inplace.names import numbers, undo_journal
from ckptdoctor.noun import noun, replace
from ckptdoctor.pruning.again import around, is_in, listed_again
from ckptdoctor.pruning.inventory import Holdings, is_read_deeply, recorded
from ckptdoctor.pruning.plan import Held, Plan, kept_after_all
from ckptdoctor.pruning.trash import Restored, Trash, in_one_go
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.runs.grouping import alone
from ckptdoctor.runs.validity import examined, read_deeply, resumable
from ckptdoctor.sealing.manifest import seal_beside
from ckptdoctor.sealing.parity.table import SUFFIX as PARITY
from ckptdoctor.stores.schema import audit_command


@noun
class Outcome:
    """What became of a checkpoint that might go: it is in the folder ``trash``, or stayed because of ``trouble``."""

    held: Held
    trash: str = ""
    trouble: str = ""


@noun
class Pruned:
    """What prune did: its ``plan``, and the outcome of each that was to go, or what was ``restored``."""

    plan: Plan | None = None
    outcomes: tuple[Outcome, ...] = ()
    restored: tuple[Restored, ...] = ()


def carry_out(found: Holdings, made: Plan) -> Iterator[Outcome]:
    """Move what may go, and yield what became of each. Raises RefusedError for stores elsewhere.

    What cannot be moved stays, and the others go all the same.
    """
    elsewhere = next((each.path for each in made.going if is_address(each.path)), None)
    if elsewhere is not None:
        raise RefusedError(
            f"{elsewhere} is on another machine, where nothing can be moved. Only the plan can be printed."
        )
    again = listed_again(found, made)
    kept = kept_after_all(made, again.pins)
    stands = _Stands(made, found, again.unfinished)
    moving = {each.path for each in made.going}
    with ExitStack() as closing:
        trash: dict[str, Trash] = {}
        for each in made.going:
            if any(outer in moving for outer in around(os.path.dirname(each.path))):
                continue  # it goes with the folder that it is in
            unlisted = (why for store, why in again.unlisted.items() if is_in(each.path, store))
            trouble = next(unlisted, "") or kept.get(each.path, "") or _changed(found.inventory, each)
            trouble = trouble or stands.trouble(each)
            store = _store_of(each.path, found.stores)
            if store not in trash:
                trash[store] = closing.enter_context(Trash(store))
            if trouble:
                yield Outcome(each, trouble=trouble)
            else:
                yield from in_one_go(partial(_moved, each, found.inventory, made, trash[store]))


def _moved(going: Held, inventory: str, made: Plan, trash: Trash) -> Outcome:
    try:
        trash.take([going.path, *_beside(going, inventory, made)])
    except (RefusedError, WriteError) as error:
        return Outcome(going, trouble=error.message.rstrip("."))
    except OSError as error:
        return Outcome(going, trouble=f"{error.filename} cannot be looked at: {error.strerror}")
    return Outcome(going, trash.path)


def _store_of(path: str, stores: Iterable[str]) -> str:
    """Return the innermost store that a checkpoint is in; of one that was audited by itself, its folder."""
    outer = [store for store in stores if path != store and is_in(path, store)]
    return max(outer, key=len, default=os.path.dirname(path))


_SHARED = ("config.json", "adapter_config.json")  # by all files of a folder


def _beside(going: Held, inventory: str, made: Plan) -> Iterator[str]:
    """Yield what is of no use without a checkpoint: the state of its optimizer, its seal and parity, undo journals."""
    path = going.path
    if os.path.isdir(path):  # has them in it
        return
    folder = os.path.dirname(path)
    alike = any(
        (each.step, each.epoch) == (going.step, going.epoch) and os.path.dirname(each.path) == folder
        for each in made.staying
    )
    if not alike:  # what stays may resume with the same optimizer
        yield from _own(path, inventory)
    yield from filter(os.path.isfile, (seal_beside(path), path + PARITY))
    for number in numbers(path, os.listdir(folder)):
        yield undo_journal(path, number)


def _own(path: str, inventory: str) -> Iterator[str]:
    """Yield the files next to one with weights that hold the state of its optimizer."""
    for each in recorded(inventory, path):
        if each.path not in (path, seal_beside(path), path + PARITY) and os.path.basename(each.path) not in _SHARED:
            yield each.path


class _Stands:
    """What stays in the stead of what goes, each read once, when it is first asked for."""

    def __init__(self, made: Plan, found: Holdings, unfinished: dict[str, str]) -> None:
        self._found = found
        self._inventory = found.inventory
        self._unfinished = unfinished
        self._valid: dict[tuple[str, str], list[Held]] = {}
        self._read: dict[str, _Read] = {}
        for each in made.staying:
            if each.valid:
                self._valid.setdefault((each.run, each.series), []).append(each)

    def trouble(self, going: Held) -> str:
        """Return why what stays is not enough for a checkpoint to go, "" if it is."""
        stay = self._valid[going.run, going.series]
        alike = [each for each in stay if each.layout == going.layout] if going.valid else stay
        needed = [(alike[-1], False)]
        if going.valid and going.resumable:
            needed.append(([each for each in alike if each.resumable][-1], True))
        for each, must_resume in needed:
            if each.path not in self._read:
                unfinished = self._unfinished.get(each.path, "")
                self._read[each.path] = _Read(unfinished) if unfinished else _read_again(each, self._inventory)
            read = self._read[each.path]
            trouble = read.trouble or (read.resumes if must_resume else "")
            if trouble:
                return (
                    f"{each.path}, which would stay in its stead, is not sound: {trouble.rstrip('.')}. "
                    f"Audit it again, and another one stays: {self._audit_again(each)}"
                )
        return ""

    def _audit_again(self, held: Held) -> str:
        """Return the audit that finds out about a checkpoint what was found here."""
        stores = [store for store in self._found.stores if is_in(held.path, store)]
        options = []
        if held.path not in self._unfinished:  # what has the same size and time as before is not read again
            options = ["--deep all" if is_read_deeply(self._inventory, held.path) else "--deep"]
        return audit_command([max(stores, key=len)] if stores else self._found.stores, self._inventory, *options)


@noun
class _Read:
    """What is wrong with a checkpoint of which all was read, "" if nothing is; ``resumes``: why it cannot resume."""

    trouble: str = ""
    resumes: str = ""


def _read_again(held: Held, inventory: str) -> _Read:
    """Read every byte and value of what is to stay, and of the state of its optimizer where that should resume."""
    try:
        folder = os.path.isdir(held.path)
        optimizers = () if folder else tuple(_own(held.path, inventory))
        found = examined(replace(alone(held.path, folder=folder), optimizers=optimizers))
        trouble = found.trouble or read_deeply(found).trouble
        return _Read(trouble, resumable(found, deep=True).trouble if held.resumable and not trouble else "")
    except CkptDoctorError as error:
        return _Read(error.message)


def _changed(inventory: str, held: Held) -> str:
    """Return how a checkpoint is another than the one that was examined, "" where it is the same."""
    if os.path.islink(held.path):
        return "it is a link"
    if os.path.realpath(held.path) != held.path:
        return f"its path leads through a link, so it may be here twice: audit {os.path.realpath(held.run)} instead"
    known = {each.path: each for each in recorded(inventory, held.path)}
    try:
        there = dict(_files(held.path))
        for path, each in known.items():
            status = there.get(path) or os.stat(path)
            if (status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino) != (
                *(each.size, each.mtime_ns, each.device, each.inode),
            ):
                return f"{path} has changed since it was examined: audit it again"
    except FileNotFoundError as error:
        return f"{error.filename} is no longer there"
    except OSError as error:
        return f"{error.filename} cannot be looked at: {error.strerror}"
    new = next((path for path in there if path not in known), None)
    return "" if new is None else f"{new} was not there when it was examined"


def _files(path: str) -> Iterable[tuple[str, os.stat_result]]:
    """Yield the files of a checkpoint, links followed."""
    if not os.path.isdir(path):
        yield path, os.stat(path)
        return

    def fail(error: OSError) -> None:
        raise error

    for folder, _, names in os.walk(path, onerror=fail):
        for name in names:
            inner = os.path.join(folder, name)
            yield inner, os.stat(inner)
