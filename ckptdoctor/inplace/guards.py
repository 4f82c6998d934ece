"""Refuses to change files in place where others would be hurt, or where nobody has tried what a crash does."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence

from ckptdoctor.errors import RefusedError, WriteError
from ckptdoctor.inplace.disk import Disk
from ckptdoctor.regex import regex
from ckptdoctor.shell import quote
from ckptdoctor.wording import system_says
from ckptdoctor.writing.system import LOCKS

# file systems on which all of this was tried: docs/in-place.md says how
TESTED = ("ext4", "xfs", "btrfs", "tmpfs")
_HASH = regex(r"(?:[0-9a-f]{40}|[0-9a-f]{64})")  # Git and Git LFS, Hugging Face
_MOST_TOLD = 3


def require_safe(path: str, *, force: bool = False) -> None:
    """Raise RefusedError unless the file or folder may be changed in place.

    ``force`` allows file systems that nobody tried. Of a folder, the files that change are asked about apart.
    """
    instead = "Write a new file: add -o OUT."
    if not LOCKS:
        raise RefusedError(f"{path} cannot be fixed in place on this system. {instead}")
    if os.path.isdir(path):
        instead = "Write a new folder: add -o OUT/."
        if os.path.islink(path):
            real = os.path.realpath(path)
            raise RefusedError(f"{path} is a symbolic link to {real}. Name that folder: --in-place {quote(real)}")
        if not os.access(path, os.W_OK):
            raise RefusedError(f"{path} cannot be fixed in place: the folder is read-only. {instead}")
    else:
        real = os.path.realpath(path)
        named = f"Name that file: --in-place {quote(real)}, or write a new one: add -o OUT."
        _require_own(path, instead, named)
        if not os.access(os.path.dirname(real), os.W_OK):
            raise RefusedError(f"{path} cannot be fixed in place: the file or its folder is read-only. {instead}")
    kind = file_system(path)
    if kind not in TESTED and not force:
        raise RefusedError(
            f"{path} is on {kind or 'an unknown file system'}, where fixing in place was not tested. {instead} To do "
            "it anyway: add --force."
        )
    if not os.path.isdir(path):
        _require_unused([path], instead)


def require_safe_files(folder: str, names: Iterable[str]) -> None:
    """Raise RefusedError unless those of these files of a folder, which is safe, that are there may be changed."""
    instead = "Write a new folder: add -o OUT/."
    paths = [path for name in names if os.path.lexists(path := os.path.join(folder, name))]
    for path in paths:
        _require_own(path, instead, instead)
        if os.lstat(path).st_dev != os.stat(folder).st_dev:
            raise RefusedError(f"{path} is on another file system than its folder. {instead}")
    _require_unused(paths, instead)


def _require_own(path: str, instead: str, named: str) -> None:
    """Raise RefusedError unless it is a regular file that this user alone has, under this name alone."""
    try:
        status = os.lstat(path)
    except OSError as error:
        raise RefusedError(f"{path} cannot be fixed in place: {system_says(error)}") from error
    if stat.S_ISLNK(status.st_mode):
        real = os.path.realpath(path)
        raise RefusedError(f"{path} is a symbolic link to {real}, which others may use. {named}")
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(f"{path} is not a regular file, so it cannot be fixed in place. {instead}")
    if status.st_nlink > 1:
        raise RefusedError(
            f"{path} is one of {status.st_nlink} names (hard links) of a file, and all of them would change. {instead}"
        )
    if _HASH.fullmatch(os.path.basename(path)):
        raise RefusedError(
            f"{path} is named by the hash of its contents (a cache of Hugging Face or Git LFS), which would no longer "
            f"be true. {instead}"
        )
    if os.geteuid() not in (0, status.st_uid):
        raise RefusedError(f"{path} belongs to another user, so it cannot be fixed in place. {instead}")
    if not os.access(path, os.W_OK):
        raise RefusedError(f"{path} cannot be fixed in place: the file or its folder is read-only. {instead}")


def _require_unused(paths: Sequence[str], instead: str) -> None:
    users = opened_by(paths)
    if users:
        path = users[0][0]
        told = ", ".join([who for each, who in users if each == path][:_MOST_TOLD])
        raise RefusedError(f"{path} is open in {told}. Close it there first, or {instead[0].lower()}{instead[1:]}")


def file_system(path: str) -> str:
    """Return the kind of file system that a file is on; "" where the system does not say (only Linux does)."""
    real = os.path.realpath(path)
    best, kind = "", ""
    for line in _lines("/proc/self/mountinfo"):
        fields, _, rest = line.partition(" - ")
        point = fields.split(" ")[4].encode().decode("unicode_escape")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # of two at one place the later counts
            best, kind = point, rest.split(" ")[0]
    return kind


def opened_by(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Return which of the files other processes have open or mapped, as far as the system tells this user."""
    reals = {os.path.realpath(path): path for path in paths}
    found = []
    for name in _names("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            for path in sorted({reals[real] for real in _used(name) if real in reals}):
                command = "".join(_lines(f"/proc/{name}/comm")).strip() or "a process"
                found.append((path, f"{command} (process {name})"))
    return found


def _used(process: str) -> Iterator[str]:
    """Yield the files that a process has open or mapped."""
    for name in _names(f"/proc/{process}/fd"):
        try:
            yield os.readlink(f"/proc/{process}/fd/{name}")
        except OSError:  # closed meanwhile
            continue
    for line in _lines(f"/proc/{process}/maps"):
        yield line.rstrip("\n").split(None, 5)[-1]


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # another user's, or gone
        return []


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.readlines()
    except OSError:
        return []


def block_to_insert(disk: Disk, folder: str) -> int | None:
    """Return the size of the blocks that the file system can put in front of a file; None where it cannot.

    It is tried with a small file, which is removed again. Raises WriteError where even that has no room.
    """
    if not hasattr(os, "statvfs"):
        return None
    block = max(4096, os.statvfs(folder or ".").f_bsize)
    path = os.path.join(folder, f".insert.{os.urandom(6).hex()}.ckptdoctor-tmp")
    try:
        fd = disk.create(path)
    except OSError as error:
        raise WriteError(
            f"Nothing can be fixed in place in {folder or '.'}: {system_says(error, 'write')} Make room, or write "
            "the repaired file elsewhere: -o OUT."
        ) from error
    try:
        disk.pwrite(fd, b"x" * (2 * block), 0)
        disk.insert(fd, block)
        return block if disk.pread(fd, 3 * block, 0) == bytes(block) + b"x" * (2 * block) else None
    except OSError:
        return None
    finally:
        disk.close(fd)
        disk.unlink(path)
