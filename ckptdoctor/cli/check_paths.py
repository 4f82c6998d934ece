"""Examines paths one after another, prints what was found, and gives the exit status."""

from __future__ import annotations

from collections.abc import Callable

from ckptdoctor.cli.console import complain, emit, only_problems, paint, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.progress import drawn
from ckptdoctor.config import load
from ckptdoctor.diagnose.selection import of_project
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.files import examine_all
from ckptdoctor.examine.paths import left_in
from ckptdoctor.findings import FileReport, Report, Severity
from ckptdoctor.noun import noun


def check_paths(
    paths: tuple[str, ...],
    *,
    deep: bool = False,
    model: str | None = None,
    config: str | None = None,
    like: str | None = None,
    error: str | None = None,
    root: str | None = None,
    select: tuple[str, ...] | None = None,
    ignore: tuple[str, ...] | None = None,
    extend_select: tuple[str, ...] | None = None,
    fail_on: str | None = None,
    style: str | None = None,
    statistics: bool = False,
    color: str = "auto",
) -> ExitStatus:
    """Check them as the options of ``check`` say; where they say nothing, as the project's configuration does."""
    project = load()
    fail_on = fail_on or project.fail_on or "warning"
    settings = Settings(
        selection=of_project(project, select, ignore, extend_select),
        deep=deep,
        unpack=False,
        like=like,
        model=model,
        config=config,
        error=error,
        root=root,
        fail_on=None if fail_on == "never" else Severity(fail_on),
    )
    printer = _Printer(style or project.format or "full", color)
    report = _examined(paths, settings, printer)
    printer.all(report, statistics)
    return _status(report, settings.fail_on)


def _examined(paths: tuple[str, ...], settings: Settings, printer: _Printer) -> Report:
    """Return the reports on all files, each printed when it is ready."""
    reports: list[FileReport] = []
    with drawn() as bar:
        files = examine_all(paths, settings, bar.hear)
        while True:
            try:
                report = next(files)
                reports.append(report)
                printer.one(report)
            except StopIteration as end:
                return Report(tuple(reports), not_begun=end.value, leftovers=tuple(left_in(paths)))
            except KeyboardInterrupt:  # between two files, or while one was printed
                if not reports:
                    raise
                return Report(tuple(reports), broken_off=True)


def _status(report: Report, fail_on: Severity | None) -> ExitStatus:
    if report.interrupted:
        return ExitStatus.INTERRUPTED
    if any(file.error is not None for file in report.files):
        return ExitStatus.TROUBLE
    ranks = [finding.severity.rank for file in report.files for finding in file.findings]
    failed = fail_on is not None and any(rank >= fail_on.rank for rank in ranks)
    return ExitStatus.FINDINGS if failed else ExitStatus.CLEAN


@noun(frozen=False)
class _Printer:
    """Prints reports as they come, in one style; what is one document at the end."""

    style: str
    color: str
    printed: int = 0

    def one(self, report: FileReport) -> None:
        if report.error is not None:
            complain(report.error)
        text = self._text(report)
        if text and (report.findings or report.interrupted or not only_problems.get()):
            emit(f"\n{text}" if self.printed and self.style == "full" else text)
            self.printed += 1

    def _text(self, report: FileReport) -> str:
        if self.style == "full" and (report.error is None or report.findings):
            from ckptdoctor.rendering import full

            return full.file_report(report, paint(self.color), width())
        if self.style == "concise":
            from ckptdoctor.rendering import concise

            return concise.file_report(report)
        if self.style == "github":
            from ckptdoctor.rendering import github

            return github.file_report(report)
        return ""

    def all(self, report: Report, counted: bool) -> None:
        if self.style in _DOCUMENTS:
            emit(_DOCUMENTS[self.style](report, counted))
            return
        if only_problems.get() and not report.interrupted:
            return
        from ckptdoctor.rendering.full import statistics

        endings = [self._total(report), statistics(report) if counted else ""]
        for text in filter(None, endings):
            emit(f"\n{text}" if self.style == "full" else text)

    def _total(self, report: Report) -> str:
        if self.style == "full":
            from ckptdoctor.rendering.full import total

            return total(report, paint(self.color))
        if self.style == "concise":
            from ckptdoctor.rendering import concise

            return concise.total(report)
        if self.style == "github":
            from ckptdoctor.rendering import github

            return github.total(report)
        return ""


def _json(report: Report, counted: bool) -> str:
    from ckptdoctor import __version__
    from ckptdoctor.rendering import json

    return json.render(report, __version__, counted)


def _sarif(report: Report, counted: bool) -> str:
    from ckptdoctor import __version__
    from ckptdoctor.diagnose.catalogue import all_rules
    from ckptdoctor.rendering import sarif

    return sarif.render(report, __version__, all_rules(), counted)


def _markdown(report: Report, counted: bool) -> str:
    from ckptdoctor.rendering import markdown

    return markdown.render(report, counted)


_DOCUMENTS: dict[str, Callable[[Report, bool], str]] = {"json": _json, "sarif": _sarif, "markdown": _markdown}
