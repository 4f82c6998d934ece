"""Recognises one rank's part of a checkpoint by its name and those of the files next to it."""

from __future__ import annotations

import os
import re
from itertools import islice

from ckptdoctor.facts.siblings import folder_of
from ckptdoctor.noun import noun

# slices of tensor parallelism: Llama's, and others'
_SLICES = re.compile(r"(consolidated[._]|model_part-)(\d{1,3})(\.(?:pth|pt|bin|safetensors))")
# what one process saved: rank_3.pt, model_rank3.pt, model.rank-03-of-08.pt
_RANKS = re.compile(
    r"(.*?rank[_-]?)(\d{1,5})((?:[_-]of[_-]\d{1,5})?(?:[_.-][a-z][\w.-]*)?\.(?:pth?|ckpt|bin|safetensors))", re.I
)
# folders of what each process saved: rank_3/model.pt, mp_rank_00/model_optim_rng.pt
_FOLDERS = re.compile(r"(.*?rank[_-]?)(\d{1,5})", re.I)
_COUNTED = re.compile(r"rank[_-]?\d+[_-]of[_-]\d", re.IGNORECASE)  # the name says how many there are
# the state of a random generator, which each rank saves next to a checkpoint that is whole
_RANDOM = re.compile(r"rng|random", re.IGNORECASE)
_MOST = 20_000  # names that are looked at in one folder


@noun
class RankFiles:
    """The rank in a file's name, and those of the files that are called alike, its own included.

    ``apart`` says that the rank is in the name of its folder, and that the others are in folders next to that.
    """

    rank: int
    ranks: tuple[int, ...]
    apart: bool = False


def slices(path: str) -> RankFiles | None:
    """Return the slices of tensor parallelism that the file is one of; None: it is called otherwise, or alone."""
    return _alike(path, _SLICES)


def files_of_ranks(path: str) -> RankFiles | None:
    """Return the files of other ranks next to that of one; None: it has another name, or is alone."""
    is_random = _RANDOM.search(path.replace("\\", "/").rpartition("/")[2]) is not None
    beside = None if is_random else _alike(path, _RANKS)
    # adapters of several ranks are called so too, but never 0: processes are counted from there
    if beside is not None and (0 in beside.ranks or _COUNTED.search(folder_of(path).name)):
        return beside
    return _in_folders(path)


def _in_folders(path: str) -> RankFiles | None:
    """Return the file of one rank in a folder of its own, where other ranks' folders have the same."""
    folder = folder_of(path)
    if not folder.name or _RANDOM.match(folder.name):
        return None
    above, own = os.path.split(os.path.abspath(folder.path))
    match = _FOLDERS.fullmatch(own)
    if match is None:
        return None
    try:
        with os.scandir(above) as entries:
            names = [entry.name for entry in islice(entries, _MOST) if entry.is_dir(follow_symlinks=False)]
    except OSError:  # not ours to list
        return None
    found = [other for name in names if (other := _FOLDERS.fullmatch(name)) is not None and other[1] == match[1]]
    there = {int(other[2]) for other in found if os.path.isfile(os.path.join(above, other[0], folder.name))}
    return RankFiles(int(match[2]), tuple(sorted(there)), apart=True) if len(there) > 1 and 0 in there else None


def _alike(path: str, pattern: re.Pattern[str]) -> RankFiles | None:
    """Return the files next to it that differ from it in the rank alone, which is the pattern's second group."""
    folder = folder_of(path)
    own = pattern.fullmatch(folder.name)
    if own is None or folder.name not in folder.names:
        return None
    matches = [match for name in folder.names if (match := pattern.fullmatch(name)) is not None]
    alike = sorted({int(match[2]) for match in matches if (match[1], match[3]) == (own[1], own[3])})
    return RankFiles(int(own[2]), tuple(alike)) if len(alike) > 1 else None
