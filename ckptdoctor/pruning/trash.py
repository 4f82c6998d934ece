"""Moves checkpoints into a trash folder of their store, and back. Nothing is ever deleted here.

Below the store is ``.ckptdoctor-trash/TIME/``, with ``log.jsonl`` and the checkpoints under the paths that they had.
Before each move its line is in the log and on the disk, and a move is a rename within one file system: wherever this
ends, each checkpoint is whole in one of the two places, and ``restored`` finds it. Paths in the log are those below the
store, so that a store that is mounted elsewhere can be restored as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from ckptdoctor.checkpoint.process import patience
from ckptdoctor.errors import DamagedError, RefusedError, UnreadableError, WriteError
from ckptdoctor.noun import noun
from ckptdoctor.shell import quote
from ckptdoctor.wording import system_says
from ckptdoctor.writing.system import sync_data, sync_directory

if TYPE_CHECKING:
    from typing_extensions import Self

Done = TypeVar("Done")

FOLDER = ".ckptdoctor-trash"
_LOG = "log.jsonl"
_KEPT = "files"


class Trash:
    """A trash folder that is being filled: made with the first move, closed by ``with``."""

    def __init__(self, store: str) -> None:
        self.store = os.path.realpath(store)
        self.path = ""
        self._log = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._log >= 0:
            os.close(self._log)

    def take(self, paths: Sequence[str]) -> None:
        """Move a checkpoint of the store here, first itself and then the files next to it, each by a rename.

        Where one of them cannot be moved, those before it are moved back. Raises RefusedError, and WriteError.
        """
        try:
            for path in paths:
                self._take(path)
        except (RefusedError, WriteError):
            for path in paths:
                self._put_back(path)
            raise

    def _take(self, path: str) -> None:
        name = _below(self.store, path)
        target = os.path.join(self.path, _KEPT, name)
        try:
            if os.lstat(path).st_dev != os.stat(self.store).st_dev:
                raise RefusedError(f"{path} is on another file system than {self.store}: audit and prune it by itself.")
            self._make()
            target = os.path.join(self.path, _KEPT, name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            self._write({"event": "moving", "path": name})
            os.rename(path, target)
            sync_directory(os.path.dirname(path))
            sync_directory(os.path.dirname(target))
            self._write({"event": "moved", "path": name})
        except OSError as error:
            if not os.path.lexists(path) and not os.path.lexists(target):  # another prune, or its owner, was faster
                raise RefusedError(f"{path} is no longer there") from error
            where = self.path or os.path.join(self.store, FOLDER)
            raise WriteError(f"{path} could not be moved into {where}: {system_says(error, 'write')}") from error

    def _put_back(self, path: str) -> None:
        name = _below(self.store, path)
        kept = os.path.join(self.path, _KEPT, name)
        if not self.path or not os.path.lexists(kept):
            return
        try:
            trouble = _give_back(kept, path)
        except OSError as error:
            trouble = system_says(error, "write") if os.path.lexists(kept) else ""
        if trouble:
            raise WriteError(
                f"{path} could not be moved back out of {self.path}: {trouble.rstrip('.')}. "
                f"Fix that, then bring it back: ckptdoctor prune --restore {quote(self.path)}"
            )
        _note(self._log, name)

    def _make(self) -> None:
        if self._log >= 0:
            return
        outer = os.path.join(self.store, FOLDER)
        os.makedirs(outer, exist_ok=True)
        self.path = _new_folder(outer)
        sync_directory(self.store)
        sync_directory(outer)
        self._log = os.open(os.path.join(self.path, _LOG), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        sync_directory(self.path)

    def _write(self, event: dict[str, str]) -> None:
        _append(self._log, event)


def _append(log: int, event: dict[str, str]) -> None:
    line = json.dumps({"time": _now().isoformat(timespec="seconds"), **event}, ensure_ascii=True) + "\n"
    os.write(log, line.encode())
    sync_data(log)


def _note(log: int, name: str) -> None:
    """Write down what came back: for people, since what is in the trash shows it as well."""
    with suppress(OSError):  # a disk that is full must not keep the next one from coming back
        _append(log, {"event": "restored", "path": name})


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _new_folder(outer: str) -> str:
    stamp = _now().strftime("%Y%m%dT%H%M%SZ")
    for number in range(1, 1000):
        path = os.path.join(outer, stamp if number == 1 else f"{stamp}-{number}")
        try:
            os.mkdir(path)
        except FileExistsError:  # another prune of the same second
            continue
        return path
    raise WriteError(f"{outer} has a thousand folders of {stamp}.")


def _below(store: str, path: str) -> str:
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    name = os.path.relpath(real, store)
    if name in (".", "..") or name.startswith(".." + os.sep) or os.path.isabs(name):
        raise RefusedError(f"{path} is not in the store {store}.")
    return name


# ---- and back


@noun
class Restored:
    """What came back out of a trash folder, by its path, or stayed there and why (``trouble``)."""

    path: str
    trouble: str = ""


def restored(trash: str) -> Iterator[Restored]:
    """Move all that a trash folder holds back to where it was, and yield what became of each.

    Nothing is overwritten: where something else has its path by now, or the system refuses, it stays in the trash.
    Called again, it goes on. Raises UnreadableError for what is not a trash folder, and DamagedError for a log that
    cannot be read.
    """
    trash = os.path.realpath(trash)
    store = os.path.dirname(os.path.dirname(trash))
    names = _logged(trash)
    log = _opened(trash)
    try:
        for name in names:
            kept, path = os.path.join(trash, _KEPT, name), os.path.join(store, name)
            if not os.path.lexists(kept):  # it was never moved, or is back already
                continue
            yield from in_one_go(partial(_brought_back, log, kept, path, name))
    finally:
        os.close(log)


def _brought_back(log: int, kept: str, path: str, name: str) -> Restored:
    try:
        trouble = _give_back(kept, path)
    except OSError as error:
        trouble = system_says(error, "write").rstrip(".") if os.path.lexists(kept) else ""
    if not trouble:
        _note(log, name)
    return Restored(path, trouble)


def in_one_go(move: Callable[[], Done]) -> Iterator[Done]:
    """Move something that Ctrl-C must not cut in two, and yield what became of it, before Ctrl-C ends the rest."""
    done: list[Done] = []
    try:
        with patience():
            done.append(move())
    except KeyboardInterrupt:
        yield from done
        raise
    yield from done


def _opened(trash: str) -> int:
    """Open the log for more lines, without what was left of a line when its writer was killed."""
    path = os.path.join(trash, _LOG)
    try:
        log = os.open(path, os.O_RDWR | os.O_APPEND)
        with open(path, "rb") as file:
            os.ftruncate(log, file.read().rfind(b"\n") + 1)
    except OSError as error:
        raise UnreadableError(f"{path} cannot be written: {system_says(error, 'write')}") from error
    return log


def _logged(trash: str) -> list[str]:
    """Return the paths below the store that were moved into a trash folder."""
    path = os.path.join(trash, _LOG)
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except OSError as error:
        raise UnreadableError(f"{trash} is not a trash folder: it has no {_LOG} that can be read.") from error
    names: dict[str, None] = {}
    for number, line in enumerate(lines[:-1], 1):  # behind the last line end is what a killed writer left
        try:
            event = json.loads(line)
            name, what = event["path"], event["event"]
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedError(f"Line {number} of {path} is damaged: {line[:80]!r}") from error
        if not isinstance(name, str) or os.path.isabs(name) or ".." in name.split(os.sep):
            raise DamagedError(f"Line {number} of {path} names {name!r}, which is not in the store.")
        if what == "moving":
            names[name] = None
    return list(names)


def _give_back(kept: str, path: str) -> str:
    """Move it back; return why that cannot be done without overwriting, or ""."""
    if os.path.lexists(path):
        if not os.path.samestat(os.lstat(kept), os.lstat(path)):
            return "something else has this path by now"
        os.unlink(kept)  # an earlier call was killed between the two steps below
        return ""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.isdir(kept) and not os.path.islink(kept):
        os.rename(kept, path)  # refused by the system where something that is not an empty folder came meanwhile
    else:
        try:
            os.link(kept, path, follow_symlinks=False)  # unlike a rename it never replaces what came meanwhile
        except FileExistsError:
            return "something else has this path by now"
        except OSError:  # a file system without hard links
            os.rename(kept, path)
        else:
            os.unlink(kept)
    sync_directory(os.path.dirname(path))
    sync_directory(os.path.dirname(kept))
    return ""
