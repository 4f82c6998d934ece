"""Says how much of a damaged file can be recovered, and names the new file."""

from __future__ import annotations

import os
from itertools import count

from ckptdoctor.findings import SalvageReport
from ckptdoctor.rendering.numbers import plural, size


def in_figures(report: SalvageReport) -> str:
    """Return how much of the file can be saved, in figures."""
    total = report.recovered + len(report.lost)
    pieces = [f"{report.recovered:,} of {plural(total, 'tensor')} intact", size(report.recovered_bytes)]
    partial = len(report.partial)
    for number, word in ((partial, "in part"), (len(report.lost) - partial, "lost")):
        if number:
            pieces.append(f"{number:,} {word}")
    return " · ".join(pieces)


def output_for(path: str) -> str:
    """Return a new name next to the file: what ``salvage`` would choose, or the first free one with a number."""
    from ckptdoctor.salvaging.checkpoint import beside

    first = beside(path)
    stem, own = os.path.splitext(first)
    return next(
        name for number in count(1) if not os.path.lexists(name := f"{stem}-{number}{own}" if number > 1 else first)
    )
