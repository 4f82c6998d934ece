"""Lists the files of a candidate with their sizes and times: as long as these change, it is still being written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from ckptdoctor.errors import UnreadableError
from ckptdoctor.noun import noun
from ckptdoctor.remote.addresses import is_address
from ckptdoctor.runs.grouping import Candidate
from ckptdoctor.runs.listing import entries
from ckptdoctor.wording import system_says

_DEEPEST = 4  # folders in the folder of a checkpoint: of ranks, of FSDP, of a model in several parts


@noun
class Files:
    """The files of a candidate: each by its name, size, time and number on its disk; two that are equal are as read."""

    each: tuple[tuple[str, int, float, int], ...]

    @property
    def nbytes(self) -> int:
        """The sizes of all of them."""
        return sum([size for _, size, _, _ in self.each])

    @property
    def saved(self) -> float:
        """When the last of them was written, in seconds; 0.0 where nobody knows."""
        return max([time for _, _, time, _ in self.each], default=0.0)

    def lacks(self, other: Files, own: Sequence[int], its: Sequence[int]) -> str:
        """Return the first file that another checkpoint has and this has not, "" where there is none.

        ``own`` and ``its`` are the numbers in the names of both, which names of files may have as well.
        """
        here = {form for name, *_ in self.each for form in (name, _without(name, own))}
        return next((name for name, *_ in other.each if not {name, _without(name, its)} & here), "")


def _without(name: str, numbers: Sequence[int]) -> str:
    return re.sub(r"\d+", lambda found: "#" if int(found[0]) in numbers else found[0], name)


def files_of(candidate: Candidate) -> Files | None:
    """Return the files of a candidate as they are now; None where it is gone.

    Raises UnreadableError where a folder of it cannot be listed.
    """
    if is_address(candidate.path):
        if not candidate.folder:
            return Files(((candidate.name, candidate.size, candidate.modified, 0),))
        try:
            return Files(tuple(sorted(_at_address(candidate.path))))
        except UnreadableError:
            return None
    try:
        if not candidate.folder:
            return Files((_file(candidate.path, candidate.name),))
        return Files(tuple(sorted(_below(candidate.path))))
    except PermissionError as error:
        raise UnreadableError(f"{error.filename} cannot be listed: {system_says(error)}") from error
    except OSError:  # removed, or renamed
        return None


def _file(path: str, name: str) -> tuple[str, int, float, int]:
    status = os.stat(path)
    return name, status.st_size, status.st_mtime, status.st_ino


def _below(folder: str, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, int, float, int]]:
    with os.scandir(folder) as scanned:
        for each in scanned:
            name = f"{prefix}{each.name}"
            if not each.is_dir():
                yield _file(each.path, name)
            elif depth < _DEEPEST:
                yield from _below(each.path, f"{name}/", depth + 1)


def _at_address(folder: str, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, int, float, int]]:
    for each in entries(folder):
        name = f"{prefix}{each.name}"
        if not each.folder:
            yield name, each.size, each.modified, 0
        elif depth < _DEEPEST:
            yield from _at_address(each.path, f"{name}/", depth + 1)
