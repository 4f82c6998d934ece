"""A difference in lines that other programs can filter: the sentence, then one line for each group."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.differences import Difference
from ckptdoctor.report.diff_groups import groups, rows
from ckptdoctor.report.diff_text import figures, stopped
from ckptdoctor.report.escape import escape
from ckptdoctor.report.numbers import plural


def render(found: Difference, every: bool = False) -> str:
    """The sentence, and what differs; ``every`` names each tensor instead of patterns."""
    return "\n".join(_lines(found, every))


def _lines(found: Difference, every: bool) -> Iterator[str]:
    lead = f"{escape(found.a.path)} {escape(found.b.path)}"
    yield f"{lead}: {escape(found.summary)}"
    for group in groups(found, every):
        if group.label != "same":
            count = f"{plural(group.count, 'tensor')}: " if group.count else ""
            yield f"{lead}: {group.label}: {count}{group.text}{f' [{group.remark}]' if group.remark else ''}"
    for row in rows(found, every):
        largest, mean, relative, cosine = figures(row.numbers)
        told = f"max {largest}, mean {mean}, relative L2 {relative}, cosine {cosine}"
        yield f"{lead}: values: {escape(row.name)}: {row.changed:,} of {row.tensors:,} changed, {told}"
    if found.interrupted is not None:
        yield f"{lead}: {stopped(found)}"
