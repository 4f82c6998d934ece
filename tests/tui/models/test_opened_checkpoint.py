"""Badges: which tensors and levels findings speak of."""

from __future__ import annotations

import subprocess
import sys

from ckptdoctor.checkpoint import Mapping
from ckptdoctor.filters.table import Table
from ckptdoctor.findings import Finding, Severity
from ckptdoctor.tui.models.opened_checkpoint import Badges
from ckptdoctor.tui.models.tree import TreeBranch
from tests.rendering.samples import tensor

TENSORS = tuple(tensor("m", f"a.{name}") for name in "xyz")


def marked(*findings):
    """The marks of these findings."""
    badges = Badges(Table(TENSORS))
    for finding in findings:
        badges.add(finding, badges.touched(finding))
    return badges


def finding(severity, *keys):
    """A finding about these places."""
    return Finding("X001", "example", severity, "…", keys=keys)


def test_the_worst_counts():
    """A tensor shows the worst that is said of it, a level the worst below it."""
    badges = marked(finding(Severity.INFO, ("m", "a.x")), finding(Severity.ERROR, ("m", "a.x"), ("m", "a.y")))
    assert [badges.worst(row) for row in range(3)] == [Severity.ERROR, Severity.ERROR, None]
    assert badges.worst(TreeBranch("a", ("m",), range(3), prefix="a.")) is Severity.ERROR
    assert badges.worst(TreeBranch("a", ("m",), [2], prefix="a.")) is None
    assert [each.severity for each in badges.about(0)] == [Severity.ERROR, Severity.INFO]


def test_places_without_tensors():
    """What is no tensor is marked with all levels above it."""
    badges = marked(finding(Severity.WARNING, ("args", "lr")))
    assert badges.worst(TreeBranch("args", ("args",), range(0), Mapping("dict", ()))) is Severity.WARNING
    assert badges.worst(TreeBranch("m", ("m",), range(3), Mapping("dict", ()))) is None


def test_models_do_not_know_textual():
    """What is shown can be worked out, and tested, without Textual, torch or numpy."""
    modules = "facts, lines, opened_checkpoint, tree"
    code = f"import sys; from ckptdoctor.tui.models import {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"textual", "rich", "torch", "numpy"} & set(loaded)


def test_neighbours_are_marked_like_others():
    """Marking many tensors at once leaves what is worse, and touches no other."""
    keys = [("m", f"a.{name}") for name in "xyz"]
    badges = marked(finding(Severity.ERROR, keys[1]), finding(Severity.WARNING, *keys[:2]))
    assert [badges.worst(row) for row in range(3)] == [Severity.WARNING, Severity.ERROR, None]
    badges = marked(finding(Severity.INFO, *keys), finding(Severity.WARNING, keys[0], keys[2]))
    assert [badges.worst(row) for row in range(3)] == [Severity.WARNING, Severity.INFO, Severity.WARNING]
