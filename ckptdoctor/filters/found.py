"""Finds the tensors that findings name: ``finding:N401`` asks for them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Protocol

from ckptdoctor.filters.table import Table
from ckptdoctor.findings import Finding
from ckptdoctor.noun import noun


class FoundRows(Protocol):
    """The findings about the tensors of a table."""

    def rows_of(self, wanted: str) -> set[int]:
        """Return the rows that findings of a code, a name or a severity speak of; "*": of any."""


@noun
class Findings:
    """Findings that do not change any more."""

    table: Table
    findings: tuple[Finding, ...] = ()

    def rows_of(self, wanted: str) -> set[int]:
        """Return the rows that findings of a code, a name or a severity speak of; "*": of any."""
        return rows_among(((each, touched(self.table, each)) for each in self.findings), wanted)


def touched(table: Table, finding: Finding) -> array[int]:
    """Return the rows of the tensors that a finding names: work for a thread when there are many."""
    row_of = table.row_of if finding.keys else {}
    return array("I", sorted({row_of[path] for path in finding.keys if path in row_of}))


def rows_among(findings: Iterable[tuple[Finding, array[int]]], wanted: str) -> set[int]:
    """Return the rows of those findings, each with its own, that are of a code, a name or a severity; "*": of all."""
    wanted = wanted.lower()
    found: set[int] = set()
    for finding, rows in findings:
        if wanted in ("*", finding.name.lower(), finding.severity.value) or finding.code.lower().startswith(wanted):
            found.update(rows)
    return found
