"""Files that are one rank's part of a checkpoint, by their names and those of the files beside them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ckptdoctor.facts.siblings import folder_of

# slices of tensor parallelism: Llama's, and others'
_SLICES = re.compile(r"(consolidated[._]|model_part-)(\d{1,3})(\.(?:pth|pt|bin|safetensors))")
# what one process saved: rank_3.pt, model_rank3.pt, model.rank-03-of-08.pt
_RANKS = re.compile(
    r"(.*?rank[_-]?)(\d{1,5})((?:[_-]of[_-]\d{1,5})?(?:[_.-][a-z][\w.-]*)?\.(?:pth?|ckpt|bin|safetensors))", re.I
)
_RANDOM = re.compile(r"rng|random", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RankFiles:
    """The rank in a file's name, and those of the files that are called alike, its own included."""

    rank: int
    ranks: tuple[int, ...]


def slices(path: str) -> RankFiles | None:
    """The slices of tensor parallelism that the file is one of; None: it is called otherwise, or alone."""
    return _alike(path, _SLICES)


def ranks(path: str) -> RankFiles | None:
    """The files of other ranks beside that of one; None: it is called otherwise, or alone."""
    return None if _RANDOM.search(path.replace("\\", "/").rpartition("/")[2]) else _alike(path, _RANKS)


def _alike(path: str, pattern: re.Pattern[str]) -> RankFiles | None:
    folder = folder_of(path)
    own = pattern.fullmatch(folder.name)
    if own is None or folder.name not in folder.names:
        return None
    matches = [match for name in folder.names if (match := pattern.fullmatch(name)) is not None]
    alike = sorted({int(match[2]) for match in matches if (match[1], match[3]) == (own[1], own[3])})
    return RankFiles(int(own[2]), tuple(alike)) if len(alike) > 1 else None
