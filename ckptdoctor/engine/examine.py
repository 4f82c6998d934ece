"""Examines many files, one after another; what goes wrong with one does not keep the others from being examined."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from ckptdoctor.checkpoint import addresses
from ckptdoctor.engine.crash import one_line, wants_trace
from ckptdoctor.engine.diagnose import chosen_rules, diagnose, read_reference
from ckptdoctor.engine.events import Finished
from ckptdoctor.engine.paths import STANDARD_INPUT, expand, spooled
from ckptdoctor.engine.settings import Settings
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.findings import FileReport
from ckptdoctor.reference import Reference


def examine_all(patterns: Iterable[str], settings: Settings) -> Iterator[FileReport]:
    """The report on every file that ``patterns`` mean (``engine.paths.expand``), each when it is ready.

    Raises what is wrong with the request itself: a bad rule code, a reference that cannot be read.
    """
    chosen_rules(settings)
    reference = read_reference(settings)
    for path in expand(patterns):
        yield _survived(path, settings, reference)


def _survived(path: str, settings: Settings, reference: Reference | None) -> FileReport:
    """The report on one file; a bug met on the way is its error, and the next file has its turn."""
    try:
        return _examined(path, settings, reference)
    except CkptDoctorError:
        raise
    except Exception as error:  # one file must not stop the others; its error is told, and the status is 2
        if wants_trace():
            raise
        return FileReport(addresses.shown(path), None, None, error=f"{addresses.shown(path)}: {one_line(error)}")


def _examined(path: str, settings: Settings, reference: Reference | None) -> FileReport:
    if path != STANDARD_INPUT:
        return _last(path, addresses.shown(path), settings, reference)
    with spooled(sys.stdin.buffer) as copy:
        return _last(copy, path, settings, reference)


def _last(path: str, shown: str, settings: Settings, reference: Reference | None) -> FileReport:
    *_, last = diagnose(path, settings, reference, shown)
    assert isinstance(last, Finished)
    return last.report
