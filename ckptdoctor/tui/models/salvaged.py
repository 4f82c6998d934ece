"""Lists the tensors of a broken file that can be saved, in file order, and names the new file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import KeyPath, addresses
from ckptdoctor.findings import Finding, LostTensor, SalvageReport
from ckptdoctor.report.numbers import plural, size

if TYPE_CHECKING:
    from ckptdoctor.salvage.checkpoint import Salvage

SAVED, PARTIAL, LOST = "saved", "partial", "lost"

# a file of a folder that cannot be read, or ends before its tensors do; and files that do
_OF_FOLDER = frozenset({"X801", "F014"})
_OF_FILE = frozenset({"F005", "F006", "F007"})


@dataclass(frozen=True, slots=True)
class Fate:
    """The fate of a tensor: ``kind`` in one word, ``said`` in more."""

    path: KeyPath
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    kind: str
    said: str


def damaged_file(path: str, finding: Finding) -> str | None:
    """The file of which a finding says that not all is there, and of which something may be saved."""
    if addresses.is_address(path):
        return None
    if not os.path.isdir(path):
        return path if finding.code in _OF_FILE else None
    if finding.code not in _OF_FOLDER or finding.location.member is None:
        return None
    name = os.path.normpath(finding.location.member)
    if os.path.isabs(name) or name.split(os.sep)[0] == os.pardir:  # what leads out of the folder is not opened
        return None
    file = os.path.join(path, name)  # it may be a link, as all files in the cache of huggingface_hub are
    return file if os.path.isfile(file) and os.path.getsize(file) else None


def fates(salvage: Salvage) -> list[Fate]:
    """Every tensor of the file."""
    lost = {each.path: each for each in salvage.report.lost}
    return [
        Fate(each.path, each.dtype.short, each.shape, each.nbytes, *_fate(lost.get(each.path)))
        for each in salvage.plan.original.tensors
    ]


def _fate(lost: LostTensor | None) -> tuple[str, str]:
    from ckptdoctor.report.salvage import state

    if lost is None:
        return SAVED, "whole"
    return (PARTIAL if 0 < lost.share < 1 else LOST), state(lost)


def in_figures(report: SalvageReport) -> str:
    """The part of the file that can be saved."""
    total = report.recovered + len(report.lost)
    pieces = [f"{report.recovered:,} of {plural(total, 'tensor')} whole", size(report.recovered_bytes)]
    partial = len(report.partial)
    for number, word in ((partial, "in part"), (len(report.lost) - partial, "lost")):
        if number:
            pieces.append(f"{number:,} {word}")
    return " · ".join(pieces)


def output_for(path: str) -> str:
    """A new name beside the file: what ``salvage`` would choose, or the first one with a number that is free."""
    from ckptdoctor.salvage.checkpoint import beside

    first = beside(path)
    stem, own = os.path.splitext(first)
    return next(
        name for number in count(1) if not os.path.lexists(name := f"{stem}-{number}{own}" if number > 1 else first)
    )
