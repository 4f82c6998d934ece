"""Gathers in one examination everything that a page about one checkpoint needs, and says where it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from ckptdoctor.checkpoint.progress import Listener, heard
from ckptdoctor.diagnose.events import Event, Measured
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.differences import Difference
from ckptdoctor.diffing.diff import Measure, diff
from ckptdoctor.diffing.request import DiffRequest
from ckptdoctor.errors import CkptDoctorError, UnreadableError, UsageError
from ckptdoctor.examine.files import examine_all
from ckptdoctor.examine.paths import STANDARD_INPUT, expand
from ckptdoctor.findings import FileReport
from ckptdoctor.noun import field, noun, replace
from ckptdoctor.rendering.fates import damaged_file, fates
from ckptdoctor.rendering.html.examined import DamagedFile, Examined
from ckptdoctor.values.statistics import Values
from ckptdoctor.wording import and_so_on
from ckptdoctor.writing.fresh import require, write_fresh

_DAMAGED = 4  # files of a folder that have a map
_KIND = b"<!doctype html>"


@noun(frozen=False)
class Gathered:
    """The report on the file, and its values where they were read."""

    report: FileReport
    values: Values | None = None


@noun(frozen=False)
class _Ears:
    """Keeps what is measured, and tells everything to another listener."""

    listener: Callable[[Event], None]
    values: Values | None = field(default=None)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Measured):
            self.values = event.values
        self.listener(event)


def gathered(path: str, settings: Settings, listener: Callable[[Event], None] = lambda event: None) -> Gathered:
    """Return the examination of the one checkpoint that ``path`` means; ``listener`` is told every event.

    Raises UsageError where it means several, and what ``examine_all`` does.
    """
    ears = _Ears(listener)
    (report,) = examine_all([single(path)], replace(settings, pictures=True), ears)
    return Gathered(report, ears.values)


def single(path: str) -> str:
    """Return the one checkpoint that a path, a folder or a pattern means. Raises UsageError where there are several."""
    found = expand([path])
    if len(found) != 1:
        some = and_so_on(found, 3)
        raise UsageError(f"{path} has {len(found):,} checkpoints ({some}), and a page shows one. Name it.")
    return found[0]


def compared(
    path: str,
    other: str,
    root: str | None,
    measure: Measure | None,
    listener: Listener = lambda progress: None,
) -> Difference:
    """Return the difference to another checkpoint; see ``diffing.diff``. ``listener`` is told how far it is.

    Raises KeyboardInterrupt where Ctrl-C came before the end.
    """
    if STANDARD_INPUT in (path, other):
        raise UsageError("Name both files to compare them: standard input can be read only once.")
    found = diff(DiffRequest(single(path), single(other), root), measure, listener)
    if found.interrupted is not None:
        raise KeyboardInterrupt
    return found


def require_room(output: str, kind: bytes, *, force: bool = False) -> None:
    """Raises WriteError at once, before anything is examined, where the page could not be written in the end."""
    require(output, kind, force=force)


def write_page(page: bytes, output: str, kind: bytes, *, force: bool = False) -> None:
    """Write the page: see ``writing.fresh.write_fresh``."""
    write_fresh(page, output, kind, force=force)


def write_stores(path: str, other: str | None, output: str, target: Mapping[str, object], *, force: bool) -> int:
    """Write the page about an inventory of stores, and say how many bytes it has.

    Raises UsageError where another checkpoint or a target is given, UnreadableError and WriteError.
    """
    from ckptdoctor import __version__
    from ckptdoctor.rendering.html.page import KIND
    from ckptdoctor.rendering.html.store import render
    from ckptdoctor.stores.overview import overview

    if other is not None or any(each is not None for each in target.values()):
        raise UsageError(f"{path} is an inventory of stores: its page takes no other checkpoint and no target.")
    require_room(output, KIND, force=force)
    page = render(overview(path), __version__)
    write_page(page, output, KIND, force=force)
    return len(page)


def write_report(
    path: str,
    other: str | None,
    output: str,
    settings: Settings,
    listener: Callable[[Event], None] = lambda event: None,
    *,
    force: bool = False,
) -> int:
    """Examine, render and write one page, and say how many bytes it has; values are read where ``settings`` say deep.

    Raises UnreadableError for a file that cannot be examined, KeyboardInterrupt where Ctrl-C came before the end, and
    what ``gathered``, ``compared`` and ``write_page`` raise.
    """
    from ckptdoctor import __version__
    from ckptdoctor.rendering.html.page import render

    require_room(output, _KIND, force=force)
    found = gathered(path, settings, listener)
    if found.report.interrupted:
        raise KeyboardInterrupt
    if found.report.error is not None:
        raise UnreadableError(found.report.error)
    difference = None
    if other is not None:
        measure = _measure() if settings.deep else None
        difference = compared(found.report.path, other, settings.root, measure, listener)
    when = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    damaged = tuple(_damaged(found.report, listener)) if settings.deep else ()
    page = render(Examined(found.report, found.values, difference, __version__, when, damaged))
    write_page(page, output, _KIND, force=force)
    return len(page)


def _damaged(report: FileReport, listener: Listener) -> Iterator[DamagedFile]:
    """Yield the files that findings say are cut off or damaged, with what can be recovered of each."""
    findings = report.findings if report.path != STANDARD_INPUT else ()  # which can be read once
    files = dict.fromkeys([damaged_file(report.path, finding) for finding in findings])
    for path in [each for each in files if each is not None][:_DAMAGED]:
        from ckptdoctor.salvaging.checkpoint import beside, plan_salvage

        try:
            with heard(listener):
                yield DamagedFile(path, tuple(fates(plan_salvage(path, beside(path), force=True))))
        except CkptDoctorError as error:
            yield DamagedFile(path, why=error.message)


def _measure() -> Measure:
    from ckptdoctor.values.differences import compare_values

    return compare_values
