"""Findings name tensors."""

from __future__ import annotations

import pytest

from ckptdoctor.filters.found import Findings, touched
from ckptdoctor.filters.table import Table
from ckptdoctor.findings import Finding, Severity
from tests.rendering.samples import tensor

TABLE = Table(tuple(tensor("m", name) for name in "xyz"))
PREFIX = Finding("N401", "module-prefix", Severity.ERROR, "…", keys=(("m", "z"), ("m", "x"), ("m", "gone")))
TAG = Finding("D601", "cuda-tag", Severity.WARNING, "…", keys=(("m", "y"), ("m", "x")))
WHOLE = Finding("C105", "legacy-format", Severity.INFO, "…")


def test_touched():
    """The rows that there are, ascending; none of a finding about the whole file."""
    assert list(touched(TABLE, PREFIX)) == [0, 2]
    assert list(touched(TABLE, WHOLE)) == []


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        ("N401", {0, 2}),
        ("n4", {0, 2}),
        ("Module-Prefix", {0, 2}),
        ("warning", {0, 1}),
        ("*", {0, 1, 2}),
        ("C105", set()),
        ("X", set()),
    ],
)
def test_rows_of(wanted, rows):
    """By code or its beginning, name or severity, whatever the case."""
    assert Findings(TABLE, (PREFIX, TAG, WHOLE)).rows_of(wanted) == rows


def test_where_nothing_was_found():
    """No finding speaks of any tensor."""
    assert Findings(TABLE).rows_of("*") == set()
