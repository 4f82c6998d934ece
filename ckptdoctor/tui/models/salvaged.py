"""What can be saved of a broken file, tensor by tensor in file order, and what the new file is called."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count

from ckptdoctor.checkpoint import KeyPath
from ckptdoctor.engine.salvage import Salvage, beside
from ckptdoctor.findings import LostTensor, SalvageReport
from ckptdoctor.report.numbers import plural, size
from ckptdoctor.report.salvage import state

SAVED, PARTIAL, LOST = "saved", "partial", "lost"


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a tensor: ``kind`` in one word, ``said`` in more."""

    path: KeyPath
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    kind: str
    said: str


def fates(salvage: Salvage) -> list[Fate]:
    """Every tensor of the file."""
    lost = {each.path: each for each in salvage.report.lost}
    return [
        Fate(each.path, each.dtype.short, each.shape, each.nbytes, *_fate(lost.get(each.path)))
        for each in salvage.plan.original.tensors
    ]


def _fate(lost: LostTensor | None) -> tuple[str, str]:
    if lost is None:
        return SAVED, "whole"
    return (PARTIAL if 0 < lost.share < 1 else LOST), state(lost)


def in_figures(report: SalvageReport) -> str:
    """How much of the file can be saved."""
    total = report.recovered + len(report.lost)
    pieces = [f"{report.recovered:,} of {plural(total, 'tensor')} whole", size(report.recovered_bytes)]
    partial = len(report.partial)
    for number, word in ((partial, "in part"), (len(report.lost) - partial, "lost")):
        if number:
            pieces.append(f"{number:,} {word}")
    return " · ".join(pieces)


def output_for(path: str) -> str:
    """A new name beside the file: what ``salvage`` would choose, or the first one with a number that is free."""
    first = beside(path)
    stem, own = os.path.splitext(first)
    return next(
        name for number in count(1) if not os.path.lexists(name := f"{stem}-{number}{own}" if number > 1 else first)
    )
