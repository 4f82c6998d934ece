"""Examines many files, one after another; what goes wrong with one does not keep the others from being examined."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable

from ckptdoctor.checkpoint.progress import follow
from ckptdoctor.crash import one_line, wants_trace
from ckptdoctor.diagnose.events import Event
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.examine.file import chosen_rules, diagnose
from ckptdoctor.examine.paths import STANDARD_INPUT, STANDARD_INPUT_SHOWN, expand, spooled
from ckptdoctor.examine.targets import Targets
from ckptdoctor.findings import FileReport, Skipped
from ckptdoctor.noun import replace
from ckptdoctor.remote import addresses


def examine_all(
    patterns: Iterable[str], settings: Settings, listener: Callable[[Event], None] = lambda event: None
) -> Generator[FileReport, None, tuple[str, ...]]:
    """Return the report on every file that ``patterns`` mean (``examine.paths.expand``), each when it is ready.

    ``listener`` is told every event. Where a report says that it was interrupted, it is the last; what is returned are
    the files that were to follow. Raises what is wrong with the request itself: a bad rule code, a reference that
    cannot be read.
    """
    chosen_rules(settings)
    paths, targets = expand(patterns), Targets(settings)
    for number, path in enumerate(paths, 1):
        report = _survived(path, settings, targets, listener)
        yield report
        if report.interrupted:
            return tuple(map(addresses.shown, paths[number:]))
    return ()


def _survived(path: str, settings: Settings, targets: Targets, listener: Callable[[Event], None]) -> FileReport:
    """Return the report on one file; a bug met on the way is its error, and the next file has its turn."""
    try:
        return _examined(path, settings, targets, listener)
    except CkptDoctorError:
        raise
    except KeyboardInterrupt:  # it came outside of the examination: while standard input was waited for
        what = Skipped("the contents", "interrupted")
        return FileReport(addresses.shown(path), None, None, skipped=(what,), interrupted=True)
    except Exception as error:  # one file must not stop the others; its error is told, and the status is 2
        if wants_trace():
            raise
        return FileReport(addresses.shown(path), None, None, error=f"{addresses.shown(path)}: {one_line(error)}")


def _examined(path: str, settings: Settings, targets: Targets, listener: Callable[[Event], None]) -> FileReport:
    if path != STANDARD_INPUT:
        return _report_on(path, addresses.shown(path), settings, targets, listener)
    with spooled(sys.stdin.buffer) as copy:
        report = _report_on(copy, path, settings, targets, listener)
    error = report.error
    return report if error is None else replace(report, error=error.replace(copy, STANDARD_INPUT_SHOWN))


def _report_on(
    path: str, shown: str, settings: Settings, targets: Targets, listener: Callable[[Event], None]
) -> FileReport:
    known = targets.is_known
    try:
        reference = targets.of(path)
    except CkptDoctorError as error:
        if not known:  # nothing was examined yet: the request itself is wrong
            raise
        return FileReport(shown, None, None, error=f"{shown}: {error.message}")
    if reference is not None and shown == STANDARD_INPUT:  # nobody knows the copy of it
        reference = replace(reference, told=reference.told.replace(path, STANDARD_INPUT_SHOWN))
    return follow(diagnose(path, settings, reference, shown), listener)
