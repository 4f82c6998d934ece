"""``ckptdoctor check``: what is wrong with these files?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ckptdoctor import config
from ckptdoctor.cli.console import complain, emit, paint, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import SHORT_HELP, WithModel, codes, color, reference_options
from ckptdoctor.cli.progress import drawn
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.files import examine_all
from ckptdoctor.examine.paths import left_in
from ckptdoctor.findings import FileReport, Report, Severity
from ckptdoctor.noun import noun


@click.command("check", cls=WithModel, context_settings=SHORT_HELP)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--deep", is_flag=True, help="Also read every byte and every value: checksums, zero-filled regions, NaN.")
@reference_options
@click.option("--error", metavar="TEXT", help="Compare with what this error of load_state_dict expects (text or file).")
@click.option("--root", metavar="KEY", help='The part of the file that matters, such as "state_dict".')
@codes("--select", "Only these rules: codes, names or prefixes, separated by commas.")
@codes("--ignore", "Not these rules.")
@codes("--extend-select", "These rules too.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info", "never"]),
    help="The lowest severity that makes the exit status 1.  [default: warning]",
)
@click.option("--format", "style", type=click.Choice(config.FORMATS), help="How to print it.  [default: full]")
@click.option("--statistics", is_flag=True, help="Also count the findings of each rule.")
@color
def command(paths: tuple[str, ...], style: str | None, statistics: bool, color: str, **asked: Any) -> ExitStatus:
    """Say what is wrong with checkpoints, and which command repairs it.

    PATH is a file, a directory (searched for checkpoints), a glob, or - for standard input. Only headers are read,
    and nothing in a file is ever run (--model imports your own code). Exit status: 0 nothing at or above --fail-on,
    1 findings, 2 a path could not be read or the request makes no sense.
    """
    project = config.load()
    settings = _settings(project, **asked)
    printer = _Printer(style or project.format or "full", color)
    report = _examined(paths, settings, printer)
    printer.all(report, statistics)
    return _status(report, settings.fail_on)


def _examined(paths: tuple[str, ...], settings: Settings, printer: _Printer) -> Report:
    """The reports on all files, each printed when it is ready."""
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


def _settings(project: config.Config, **asked: Any) -> Settings:
    """The command line, with the project's configuration where it says nothing."""
    given = {name: asked[name] if asked[name] is not None else getattr(project, name) for name in _FROM_PROJECT}
    fail_on = given["fail_on"] or "warning"
    return Settings(
        selection=Selection(given["select"], given["ignore"] or (), given["extend_select"] or ()),
        deep=asked["deep"],
        unpack=False,
        like=asked["like"],
        model=asked["model"],
        config=asked["config"],
        error=asked["error"],
        root=asked["root"],
        fail_on=None if fail_on == "never" else Severity(fail_on),
    )


_FROM_PROJECT = ("select", "ignore", "extend_select", "fail_on")


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
        if text:
            emit(f"\n{text}" if self.printed and self.style == "full" else text)
            self.printed += 1

    def _text(self, report: FileReport) -> str:
        if self.style == "full" and (report.error is None or report.findings):
            from ckptdoctor.report import full

            return full.file_report(report, paint(self.color), width())
        if self.style == "concise":
            from ckptdoctor.report import concise

            return concise.file_report(report)
        if self.style == "github":
            from ckptdoctor.report import github

            return github.file_report(report)
        return ""

    def all(self, report: Report, counted: bool) -> None:
        if self.style in _DOCUMENTS:
            emit(_DOCUMENTS[self.style](report, counted))
            return
        from ckptdoctor.report.full import statistics

        endings = [self._total(report), statistics(report) if counted else ""]
        for text in filter(None, endings):
            emit(f"\n{text}" if self.style == "full" else text)

    def _total(self, report: Report) -> str:
        if self.style == "full":
            from ckptdoctor.report.full import total

            return total(report, paint(self.color))
        if self.style == "concise":
            from ckptdoctor.report import concise

            return concise.total(report)
        if self.style == "github":
            from ckptdoctor.report import github

            return github.total(report)
        return ""


def _json(report: Report, counted: bool) -> str:
    from ckptdoctor import __version__
    from ckptdoctor.report import json

    return json.render(report, __version__, counted)


def _sarif(report: Report, counted: bool) -> str:
    from ckptdoctor import __version__
    from ckptdoctor.diagnose.catalogue import all_rules
    from ckptdoctor.report import sarif

    return sarif.render(report, __version__, all_rules(), counted)


def _markdown(report: Report, counted: bool) -> str:
    from ckptdoctor.report import markdown

    return markdown.render(report, counted)


_DOCUMENTS: dict[str, Callable[[Report, bool], str]] = {"json": _json, "sarif": _sarif, "markdown": _markdown}
