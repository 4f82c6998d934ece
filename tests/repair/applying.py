"""Applies edits to a file as a repair does: planned, written, held against the plan, and only then published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ckptdoctor import formats
from ckptdoctor.account.account import require_accounted
from ckptdoctor.checkpoint import FileSource
from ckptdoctor.edits import Edit, Safety
from ckptdoctor.repair.draft import Draft
from ckptdoctor.repair.plan import Plan
from ckptdoctor.repair.repair import Outcome, repair
from ckptdoctor.repair.request import FixRequest


def planned(path: Path, edits: Sequence[Edit], output: Path | None = None) -> Plan:
    """The plan of a repair that consists of these edits, all in one step."""
    return planned_steps(path, [edits], output)


def planned_steps(path: Path, steps: Sequence[Sequence[Edit]], output: Path | None = None) -> Plan:
    """The same with several steps."""
    with FileSource(path) as source:
        original = formats.read(source, formats.examine(source))
        draft = Draft(original)
        for step in steps:
            draft.add("test", "", "test", Safety.UNSAFE, tuple(step))
        wanted = draft.wanted
        require_accounted(original, wanted.contents, wanted.edits, wanted.remade, wanted.pieces)
        recipe = formats.write(wanted, source)
    return Plan(
        request=FixRequest(str(path), force=True),
        output=str(output or path.with_suffix(f".fixed{path.suffix}")),
        wanted=wanted,
        steps=tuple(draft.steps),
        recipe=recipe,
        file=str(path),
    )


def repaired(path: Path, edits: Sequence[Edit], output: Path | None = None) -> Outcome:
    """The outcome, proven: every storage of the output is accounted for."""
    outcome = repair(planned(path, edits, output))
    assert_all_proven(outcome)
    return outcome


def assert_all_proven(outcome: Outcome) -> None:
    """No storage of the output is of unknown origin."""
    proof = outcome.proof
    assert proof is not None
    assert proof.identical + proof.shrunk + proof.remade + proof.computed + proof.inflated == proof.storages
