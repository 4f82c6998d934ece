"""An explanation is compared with the file that it is about: the file is examined for what the error says of it."""

from __future__ import annotations

import shlex
from contextlib import suppress

from ckptdoctor.checkpoint import ROOT, Checkpoint
from ckptdoctor.checkpoint.expectation import is_extra_state
from ckptdoctor.edits import Fix
from ckptdoctor.errors import CkptDoctorError, UsageError
from ckptdoctor.examine.file import check
from ckptdoctor.explaining.confirm import confirm
from ckptdoctor.explaining.explanation import Confirmation, Explanation
from ckptdoctor.explaining.load_error import load_error
from ckptdoctor.explaining.text import cleaned
from ckptdoctor.findings import Coverage, FileReport
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.rules.incompatible_keys import LoadError
from ckptdoctor.rules.registry import all_rules
from ckptdoctor.target.error_text import as_reference


def verdict(explained: Explanation, raw: str, path: str) -> tuple[Confirmation, FileReport]:
    """Return what the file at ``path`` says to the first cause of an explanation, of which ``raw`` is the text.

    With it comes the report that it follows from. Only headers are read. What is wrong with the file itself is a
    verdict as well: nothing is raised for it.
    """
    error = load_error(cleaned(raw))
    report = check(path)
    if error is not None and report.checkpoint is not None:
        with suppress(UsageError):  # there are no weights that the error could be about: the plain report says so
            report = check(path, reference=as_reference(error, report.checkpoint).reference)
    return confirm(explained.hits[0], report, error, frozenset([rule.code for rule in all_rules()])), report


def way_to_the_model(raw: str, report: FileReport) -> tuple[Fix, ...]:
    """Return several fixes after which the file has exactly the keys that the error in ``raw`` calls missing.

    ``report`` is that of the file, with what the error wants. Each of the fixes alone would lead to the next error. ()
    where one is enough, or where it is not known that all of them together are.
    """
    error, coverage = load_error(cleaned(raw)), report.coverage
    if error is None or coverage is None or not _tells_all(error) or len(coverage.steps) < 2:
        return ()
    fixes = _of_steps(report, coverage)
    request = _together(report.path, fixes)
    if request is None:
        return ()
    from ckptdoctor.repair.plan import plan

    try:
        return fixes if _has_exactly(plan(request).expected, error.missing) else ()
    except CkptDoctorError:
        return ()


def _tells_all(error: LoadError) -> bool:
    """Return whether all keys of the model are in the error, as they are where a file was loaded whole."""
    return bool(error.complete and error.missing and not error.mismatched and not error.first_only)


def _of_steps(report: FileReport, coverage: Coverage) -> tuple[Fix, ...]:
    """Return the fix of each step, in their order; () where a step has none."""
    offered = {finding.code: finding.fix for finding in report.findings if finding.fix is not None}
    found = [offered.get(step.code) for step in coverage.steps]
    return tuple([fix for fix in found if fix is not None]) if None not in found else ()


def _together(path: str, fixes: tuple[Fix, ...]) -> FixRequest | None:
    """Return what one command asks for that has the options of all fixes; None for options that are not about names."""
    root, module = None, False
    prefixes: list[str] = []
    for name, *value in [shlex.split(option) for fix in fixes for option in fix.options]:
        if name == "--root" and value and root is None and not module and not prefixes:
            root = value[0]
        elif name == "--strip-module" and not prefixes:
            module = True
        elif name == "--strip-prefix" and value:
            prefixes.append(value[0])
        else:
            return None
    return FixRequest(path, root=root, strip_module=module, strip_prefixes=tuple(prefixes)) if fixes else None


def _has_exactly(contents: Checkpoint, wanted: tuple[str, ...]) -> bool:
    """Return whether the keys at the top are those wanted; of others there may be what torch does not ask for."""
    at_top = next((each for each in contents.state_dicts if each.path == ROOT), None)
    if at_top is None or not {*wanted} <= {*at_top.keys}:
        return False
    more = {*at_top.keys, *at_top.others}.difference(wanted)
    return all(is_extra_state(key) or key.rpartition(".")[2] == "num_batches_tracked" for key in more)
