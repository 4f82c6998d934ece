"""Runs the rules over what was read of a file; nothing is opened here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Container, KeyPath
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.checkpoint.process import collector_paused
from ckptdoctor.findings import Coverage, Finding
from ckptdoctor.noun import replace
from ckptdoctor.remote import addresses
from ckptdoctor.rules.framework import Rule, subject_for
from ckptdoctor.rules.registry import all_rules, concerned, deep

if TYPE_CHECKING:
    from ckptdoctor.match.comparison import Comparison


@collector_paused()
def findings_of(
    checkpoint: Checkpoint,
    rules: Iterable[Rule] | None = None,
    reference: Reference | None = None,
    root: KeyPath | None = None,
) -> list[Finding]:
    """Return what the rules (None: all) find in a checkpoint, worst first, without reading any file.

    With a reference, the rules that can compare do. ``root`` is where the state dict that matters was said to be.
    """
    comparison = compared(checkpoint, reference, root)
    return worst_first(apply_rules(all_rules() if rules is None else rules, (comparison, checkpoint)))


@collector_paused()
def compared(checkpoint: Checkpoint, reference: Reference | None, root: KeyPath | None) -> Comparison | None:
    """Return the comparison of the checkpoint with a reference; None without one."""
    if reference is None:
        return None
    from ckptdoctor.match.comparing import compare

    return compare(checkpoint, reference, root)


def apply_rules(rules: Iterable[Rule], subjects: Sequence[object]) -> Iterator[Finding]:
    """Yield the findings of each rule over the first of the subjects that it reads; None is read by no rule."""
    for rule in rules:
        subject = subject_for(rule, subjects)
        if subject is not None:
            yield from rule.run(subject)


def concerned_by(subjects: Iterable[object]) -> Iterator[Rule]:
    """Yield the rules that a container, a checkpoint, or what was found in all bytes of one among these concerns."""
    for subject in subjects:
        if isinstance(subject, (Container, Checkpoint)):
            yield from concerned(subject)
        elif subject is not None:
            yield from deep()


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by severity, then by code; those of one rule stay in their order."""
    return sorted(findings, key=lambda finding: (-finding.severity.rank, finding.code))


def possible(finding: Finding, container: Container) -> Finding:
    """Return the finding without a repair that a container which is only read cannot have."""
    if finding.fix is None or formats.is_written(container.format):
        return finding
    from ckptdoctor.diagnose.fixes import of_index, outside

    edits = finding.fix.edits
    return finding if outside(edits) or of_index(edits) else replace(finding, fix=None)


def attainable(coverage: Coverage, path: str, container: Container) -> Coverage:
    """Return the coverage without the option of a command that would be refused: of what is only read, or not here."""
    if formats.is_written(container.format) and not addresses.is_address(path):
        return coverage
    return replace(coverage, option="")
