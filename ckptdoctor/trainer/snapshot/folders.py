"""Checkpoint folders are complete or not there: whoever is killed while writing one leaves the last one whole.

A folder is named after how far its run has come. It is filled under the name ``epoch-0003.partial`` and gets its own
name when every byte is on the disk. Reading goes by names alone, so there is no moment in which half a checkpoint could
be taken for one.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"epoch-(\d{4,})(?:-step-(\d{4,}))?")


@dataclass(frozen=True, order=True)
class Position:
    """A place in a run. Positions are ordered by how far they are."""

    epoch: int = 0
    """Epochs that are complete."""
    step: int = 0
    """Steps that are done of the next one."""
    best_accuracy: float = 0.0
    """The best test accuracy so far, as a fraction."""

    @property
    def name(self) -> str:
        """The name of its checkpoint folder: ``epoch-0003``, or ``epoch-0002-step-0057`` in the middle of an epoch."""
        return f"epoch-{self.epoch:04}" + (f"-step-{self.step:04}" if self.step else "")


def position_of(name: str) -> Position | None:
    """Return the position that a folder name stands for, or None for any other name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    position = Position(int(found[1]), int(found[2] or 0))
    return position if position.name == name else None


TRAINING = "training.pt"
TRUTH = "truth.json"

_PARTIAL = ".partial"
_REPLACED = ".replaced"  # a complete folder that had to make room for its successor of the same name


def begin(out: Path, position: Position) -> Path:
    """Return an empty folder to fill, ``NAME.partial``; what an earlier attempt left under this name goes."""
    partial = partial_of(out, position)
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    return partial


def partial_of(out: Path, position: Position) -> Path:
    """Return the name of the folder of this position while it is being filled."""
    return out / (position.name + _PARTIAL)


def commit(partial: Path) -> Path:
    """Give a filled folder its name. First its bytes are made safe: a name must not survive a power cut alone."""
    final = partial.with_name(partial.name.removesuffix(_PARTIAL))
    for folder, _, files in os.walk(partial):
        for name in files:
            _sync(os.path.join(folder, name))
        _sync(folder)
    if final.exists():
        _replace(partial, final)
    else:
        os.replace(partial, final)
    _sync(final.parent)
    return final


def complete_folders(out: Path) -> list[Path]:
    """Return the complete checkpoint folders of a run, oldest first; none where there is no such directory."""
    if not out.is_dir():
        return []
    found = [(position, path) for path in out.iterdir() if (position := position_of(path.name)) and _is_complete(path)]
    return [path for _, path in sorted(found)]


def newest(out: Path) -> Path | None:
    """Return the complete checkpoint folder that has come furthest, or None when there is none."""
    return next(reversed(complete_folders(out)), None)


def in_the_way(out: Path, begun: Position) -> Path | None:
    """Return what is not a complete checkpoint, but has the name of one that a run will save after ``begun``."""
    for path in sorted(out.iterdir()) if out.is_dir() else ():
        position = position_of(path.name)
        if position is not None and position > begun and not _is_complete(path):
            return path
    return None


def sweep(out: Path) -> None:
    """Remove what a killed run left half written. Only for a run that begins: nobody else may be writing here."""
    for path in sorted(out.iterdir()) if out.is_dir() else ():
        name, suffix = path.stem, path.suffix
        if position_of(name) is None or not path.is_dir():
            continue
        if suffix == _REPLACED and not (out / name).exists():
            os.replace(path, out / name)  # killed between the two renames of _replace
        elif suffix in (_PARTIAL, _REPLACED):
            shutil.rmtree(path)


def _is_complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (TRAINING, TRUTH))


def _replace(partial: Path, final: Path) -> None:
    """Take the place of a folder. A folder cannot be renamed onto a full one, so the two trade names in one step.

    Where the system has no such step two renames follow each other, and ``sweep`` knows what is between them.
    """
    if exchange(partial, final):
        shutil.rmtree(partial)
        return
    replaced = final.with_name(final.name + _REPLACED)
    if replaced.exists():
        shutil.rmtree(replaced)
    os.replace(final, replaced)
    os.replace(partial, final)
    shutil.rmtree(replaced)


def _sync(path: str | Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if os.name == "nt" and os.path.isdir(path):
        return  # Windows opens no folders, and syncs their names by itself
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_AT_FDCWD = -100  # Linux, fcntl.h: relative paths start at the working directory
_RENAME_EXCHANGE = 2  # Linux, renameat2(2)
_RENAME_SWAP = 2  # macOS, renamex_np(2)
# what a system, or a file system, says of a call that it does not have
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM})


def exchange(one: Path, other: Path) -> bool:
    """Let the two paths trade what they name. False where that cannot be done in one step; nothing has changed then.

    ``renameat2(2)`` with RENAME_EXCHANGE on Linux, ``renamex_np(2)`` with RENAME_SWAP on macOS. Raises OSError.
    """
    call = _system_call()
    if call is None:
        return False
    if call(os.fsencode(one), os.fsencode(other)) == 0:
        return True
    error = ctypes.get_errno()
    if error in _UNSUPPORTED:
        return False
    raise OSError(error, os.strerror(error), str(other))


def _system_call() -> Callable[[bytes, bytes], int] | None:
    """Return the call that exchanges two paths, or None where there is none (Windows, an old C library)."""
    if sys.platform == "win32":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    if hasattr(library, "renameat2"):
        return lambda one, other: int(library.renameat2(_AT_FDCWD, one, _AT_FDCWD, other, _RENAME_EXCHANGE))
    if hasattr(library, "renamex_np"):
        return lambda one, other: int(library.renamex_np(one, other, _RENAME_SWAP))
    return None
