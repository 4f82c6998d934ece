"""How often each rule found something, over all files."""

from __future__ import annotations

from collections import Counter

from ckptdoctor.findings import Report
from ckptdoctor.report.numbers import count
from ckptdoctor.report.wrapping import columns


def statistics(report: Report) -> str:
    """One line a rule, most frequent first: files, severity, code and name."""
    kinds = [(each.code, each.name, each.severity) for file in report.files for each in file.findings]
    tally = sorted(Counter(kinds).items(), key=lambda item: (-item[1], item[0][0]))
    rows = [(count(number), severity.value, code, name) for (code, name, severity), number in tally]
    return "\n".join(columns(rows, right=frozenset({0}), gap="  ")) if rows else ""
