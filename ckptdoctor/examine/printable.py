"""Keeps of findings what holds once everything is known of a file: only commands that work on it.

A rule knows its own cause, and not what else is wrong: a file that is cut off is not edited at all, and one that lacks
weights is not brought to its target by a rename.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from ckptdoctor.checkpoint import Checkpoint, KeyPath, show_path
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.checkpoint.process import complete
from ckptdoctor.errors import CkptDoctorError, UnreadableError
from ckptdoctor.examine.paths import STANDARD_INPUT
from ckptdoctor.findings import Coverage, Finding, Severity
from ckptdoctor.noun import replace
from ckptdoctor.remote import addresses
from ckptdoctor.shell import quote, word

if TYPE_CHECKING:
    from ckptdoctor.match.comparison import Comparison

_DAMAGE = "F"  # the family of rules about files that are not what was written
_IN_DOUBT = ("P213",)  # readers disagree on what the pickle holds, so that nothing can be proven of it
_LAYOUT = ("M971", "M978")  # of no account in a file of which values are missing
# bytes that were there are lost, or others
_LOST = frozenset(
    {"F004", "F005", "F006", "F007", "F008", "F009", "F010", "F011", "F012", "F014", "F015", "C110", "C111", "X801"}
)
_UNLIKE_SEAL = "F012"
_INCOMPLETE = ("X801",)  # convert refuses what is not complete, as it refuses damage
_READ = 4 << 20  # bytes of parity, of which the file is read: with 1 % it has a hundred times as many
_TRAINED = ("L906",)  # its repair leaves out what was trained: it can be asked for, and is no advice
_AUTO = "--auto"
_TRY = "That alone does not make the file fit. To see what would, or that nothing does:"


def printable(findings: Iterable[Finding], checkpoint: Checkpoint | None) -> list[Finding]:
    """Return the findings without repairs that another finding makes refused, and without what no longer matters."""
    found = list(findings)
    found = [replace(each, fix=None) if each.code in _TRAINED else each for each in found]
    fatal = [each for each in found if each.fix is None and each.severity is Severity.ERROR]
    damaged = any(each.code.startswith(_DAMAGE) for each in fatal)
    if damaged:
        found = [each for each in found if each.code not in _LAYOUT]
    if damaged or any(each.code in _IN_DOUBT for each in found):
        found = [each if each.code.startswith(_DAMAGE) else replace(each, fix=None) for each in found]
    if damaged or any(each.code in _INCOMPLETE for each in fatal):
        found = [_after_damage(each) for each in found]
    if checkpoint is None or not checkpoint.tensors:
        found = [_without_values(each) for each in found]
    return found


def restoring(findings: Iterable[Finding], path: str, *, deep: bool) -> list[Finding]:
    """Return the findings of damage with the command that rebuilds the file from its parity, where there is some.

    With a seal alone they name the command that says what changed. Whether there is parity enough is asked where
    everything is read anyway, or that is little.
    """
    found = list(findings)
    if addresses.is_address(path) or not any(each.code in _LOST for each in found):
        return found
    parity = _of_parity(path, deep)
    if parity is _Parity.SEALED_SO:
        return found
    return [_restored(each, parity, path) if each.code in _LOST else each for each in found]


class _Parity(Enum):
    """What is known of the parity of a damaged file or folder."""

    NONE = 0  # there is none, or not enough
    SEALED_SO = 1  # nothing changed since it was made
    PERHAPS = 2  # whether it is enough was not asked: that takes reading everything
    ENOUGH = 3


def _restored(finding: Finding, parity: _Parity, path: str) -> Finding:
    """Return a finding of damage with what restores the file, or says what is damaged."""
    if parity is _Parity.NONE:
        command = _verifying(path)
        if not command or "ckptdoctor verify" in finding.advice:
            return finding
        # in front: advice may end with the words that lead to its own command
        return replace(finding, advice=f"{command} shows what changed since it was sealed. {finding.advice}".strip())
    from ckptdoctor.sealing.parity.code import needed

    rebuild, install = "ckptdoctor rebuild FILE", f" {needed()}".rstrip()
    if parity is _Parity.PERHAPS:
        advice = f"Its parity may rebuild what is lost.{install} Otherwise: {finding.advice}"
        return replace(finding, advice=advice, commands=(rebuild, *finding.commands))
    why = (
        "If it was changed on purpose, seal it again. Otherwise rebuild" if finding.code == _UNLIKE_SEAL else "Rebuild"
    )
    return replace(finding, advice=f"{why} what is lost from its parity.{install}", commands=(rebuild,))


def _of_parity(path: str, deep: bool) -> _Parity:
    from ckptdoctor.sealing.parity.folders import parity_in, rebuild_any

    try:
        sizes = [os.path.getsize(each) for each in parity_in(path)]
    except UnreadableError:  # verify says what cannot be listed
        return _Parity.NONE
    if not sizes:
        return _Parity.NONE
    if not deep and sum(sizes) > _READ:
        return _Parity.PERHAPS
    try:
        return _Parity.SEALED_SO if rebuild_any(path, dry=True).output is None else _Parity.ENOUGH
    except CkptDoctorError:  # too much is lost, or it is the parity of another file: verify says so
        return _Parity.NONE


def _verifying(path: str) -> str:
    """Return the command that compares a file or folder with its seal; "" without one."""
    from ckptdoctor.sealing.manifest import entries_of, seal_beside  # most files are not damaged

    if os.path.isdir(path):
        return "ckptdoctor verify FILE" if os.path.isfile(seal_beside(path)) else ""
    where = next((each[0] for each in entries_of(path)), "")
    if not where:
        return ""
    if os.path.realpath(where) == os.path.realpath(seal_beside(path)):
        return "ckptdoctor verify FILE"
    folder = os.path.dirname(where)
    return f"ckptdoctor verify {quote(folder if os.path.isabs(path) else os.path.relpath(folder))}"


def keeping(
    findings: Iterable[Finding],
    checkpoint: Checkpoint,
    comparison: Comparison | None,
    path: str,
    root: KeyPath | None,
    shown: str,
) -> list[Finding]:
    """Return the findings without a repair that leaves out the only copy of a weight.

    A person decides that in a draft map.

    ``--unsafe-fixes`` still does it for whoever asks for it by that name.
    """
    found = list(findings)
    losses = [_lost(each, checkpoint) for each in found]
    if not any(losses):
        return found
    local = comparison is not None and not addresses.is_address(path)
    passed = comparison is not None and _passes_over(comparison)
    # of a file that fits but for what is left over nothing has to be tried: that takes twice as long as all the rest
    named = comparison is not None and local and bool(comparison.reference.option)
    drafted = comparison is not None and named and (passed or _is_drafted(path, comparison.reference, root))
    command = _drafting(comparison.reference, root, shown) if comparison is not None and drafted else ""
    return [
        each if not loss else replace(each, fix=None, **_decided(each, checkpoint, loss, command, passed))
        for each, loss in zip(found, losses, strict=True)
    ]


def _lost(finding: Finding, checkpoint: Checkpoint) -> list[str]:
    """Return the weights that the repair of a finding would leave out, and that are nowhere else in the file."""
    fix = finding.fix
    if fix is None:
        return []
    from ckptdoctor.diagnose.fixes import lost_by
    from ckptdoctor.edits import Safety

    return lost_by(fix.edits, checkpoint) if fix.safety is Safety.UNSAFE else []


def _decided(
    finding: Finding, checkpoint: Checkpoint, lost: Sequence[str], command: str, passed: bool
) -> dict[str, Any]:
    """Return the words and the command with which a person decides, in the place of a repair."""
    from ckptdoctor.diagnose.only_copies import may_have_copies

    loss = len(lost)
    what = "This file has the only copy of it" if loss == 1 else f"This file has the only copy of {loss:,} of them"
    what = "This file has the only copy of each" if 1 < loss == len(finding.keys) else what
    if may_have_copies(checkpoint, lost):
        what = f"As far as headers show, this{what.removeprefix('This')}"
    over = " load_state_dict(strict=False) ignores keys that the model does not have." if passed else ""
    if not command:
        said = f"{what}, so no command that drops {'it' if loss == 1 else 'them'} is offered.{over}"
        return {"advice": f"{finding.advice} {said}".strip()}
    said = f"{what}.{over} To leave {'it' if loss == 1 else 'them'} out, confirm that in a draft map:"
    return {"advice": f"{finding.advice} {said}".strip(), "commands": (*finding.commands, command)}


def _passes_over(comparison: Comparison) -> bool:
    """Return whether ``load_state_dict(strict=False)`` of the target loads everything that it wants as it is."""
    plain = comparison.plain
    return not comparison.nested and not comparison.steps and not plain.missing and not plain.mismatched


def _drafting(reference: Reference, root: KeyPath | None, shown: str) -> str:
    from ckptdoctor.repair.request import draft_path

    where = f"--root {word(show_path(root))} " if root else ""
    draft = draft_path("draft" if shown == STANDARD_INPUT else shown)
    return complete(f"ckptdoctor fix FILE {where}{_AUTO} {reference.option} --write-map {quote(draft)}")


def _is_drafted(path: str, reference: Reference, root: KeyPath | None) -> bool:
    """Return whether a draft map of this file would lead to the target, once it is confirmed."""
    from ckptdoctor.repair.name_map import UnfitError
    from ckptdoctor.repair.plan import plan
    from ckptdoctor.repair.request import FixRequest, draft_path

    where = show_path(root) if root else None
    try:
        plan(FixRequest(path, root=where, auto=True, reference=reference, write_map=draft_path(path)))
    except UnfitError as error:
        return error.draft is not None
    except CkptDoctorError:
        return False
    return True


def _converts(finding: Finding) -> bool:
    return any(each.startswith("ckptdoctor convert ") for each in finding.commands)


def _after_damage(finding: Finding) -> Finding:
    if not _converts(finding):
        return finding
    return replace(finding, commands=(), advice="It can be converted once the damage is gone.")


def _without_values(finding: Finding) -> Finding:
    if not _converts(finding):
        return finding
    return replace(finding, commands=(), advice="It has no readable values to convert.")


def towards(
    findings: Iterable[Finding],
    coverage: Coverage,
    path: str,
    reference: Reference,
    root: KeyPath | None,
    *,
    plain: bool,
) -> tuple[list[Finding], Coverage]:
    """Return the findings and the coverage without an ``--auto`` that would be refused: it is planned, but not written.

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
    from ckptdoctor.repair.plan import is_carried_out
    from ckptdoctor.repair.request import FixRequest

    where = show_path(root) if root else None
    try:
        return is_carried_out(FixRequest(path, root=where, auto=True, reference=reference, unsafe=unsafe))
    except CkptDoctorError:
        return False
