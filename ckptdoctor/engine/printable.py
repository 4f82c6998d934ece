"""What is left of findings once everything is known of a file: only commands that work on it.

A rule knows its own cause, and not what else is wrong: a file that is cut off is not edited at all, and one that lacks
weights is not brought to its target by a rename.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ckptdoctor.checkpoint import Checkpoint, KeyPath, addresses, show_path
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.findings import Coverage, Finding, Severity

_DAMAGE = "F"  # the family of rules about files that are not what was written
_IN_DOUBT = ("P213",)  # readers disagree on what the pickle holds, so that nothing can be proven of it
_LAYOUT = ("M971", "M978")  # of no account in a file of which values are missing
_TRAINED = ("L906",)  # its repair leaves out what was trained: it can be asked for, and is no advice
_AUTO = "--auto"
_TRY = "That alone does not make the file fit. What would, or that nothing does, is told by:"


def printable(findings: Iterable[Finding], checkpoint: Checkpoint | None) -> list[Finding]:
    """The findings without repairs that are refused because of another finding, and without what no longer matters."""
    found = list(findings)
    found = [replace(each, fix=None) if each.code in _TRAINED else each for each in found]
    fatal = [each for each in found if each.fix is None and each.severity is Severity.ERROR]
    damaged = any(each.code.startswith(_DAMAGE) for each in fatal)
    if damaged:
        found = [each for each in found if each.code not in _LAYOUT]
    if damaged or any(each.code in _IN_DOUBT for each in found):
        found = [each if each.code.startswith(_DAMAGE) else replace(each, fix=None) for each in found]
    if checkpoint is None or not checkpoint.tensors:
        found = [_without_values(each) for each in found]
    return found


def _without_values(finding: Finding) -> Finding:
    if not any(each.startswith("ckptdoctor convert ") for each in finding.commands):
        return finding
    return replace(finding, commands=(), advice="No values can be read from it that could be converted.")


def towards(
    findings: Iterable[Finding],
    coverage: Coverage,
    path: str,
    reference: Reference,
    root: KeyPath | None,
    *,
    plain: bool,
) -> tuple[list[Finding], Coverage]:
    """The findings and the coverage without an ``--auto`` that would be refused: it is planned, but not written.

    ``plain``: there is nothing but tensors among the weights, so that a coverage of everything tells enough.
    """
    found = list(findings)
    safe = [each for each in found if _asks(each) and "--unsafe-fixes" not in _options(each)]
    unsafe = [each for each in found if _asks(each) and "--unsafe-fixes" in _options(each)]
    told = bool(coverage.option and coverage.steps and coverage.steps[-1].keys == coverage.total_keys)
    if addresses.is_address(path) or not (safe or unsafe or told):
        return found, coverage
    if told and not unsafe and plain:
        return found, coverage  # nothing is left over, and no name is a guess
    fits = (safe or told) and _fits(path, reference, root, unsafe=False)
    if (safe or told) and not fits:
        coverage = replace(coverage, option="")
        found = [_only_tried(each) if each in safe else each for each in found]
    if unsafe and not fits and not _fits(path, reference, root, unsafe=True):
        found = [_only_tried(each) if each in unsafe else each for each in found]
    return found, coverage


def _asks(finding: Finding) -> bool:
    return finding.fix is not None and finding.fix.option.startswith(_AUTO)


def _options(finding: Finding) -> tuple[str, ...]:
    return () if finding.fix is None else finding.fix.options


def _only_tried(finding: Finding) -> Finding:
    assert finding.fix is not None
    command = f"ckptdoctor fix FILE {finding.fix.option}"
    return replace(finding, fix=None, advice=f"{finding.advice} {_TRY}".strip(), commands=(*finding.commands, command))


def _fits(path: str, reference: Reference, root: KeyPath | None, *, unsafe: bool) -> bool:
    from ckptdoctor.engine.plan import is_carried_out
    from ckptdoctor.engine.request import FixRequest

    where = show_path(root) if root else None
    try:
        return is_carried_out(FixRequest(path, root=where, auto=True, reference=reference, unsafe=unsafe))
    except CkptDoctorError:
        return False
