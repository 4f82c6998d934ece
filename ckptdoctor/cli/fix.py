"""``ckptdoctor fix``: repair a checkpoint without losing anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import click

from ckptdoctor import config
from ckptdoctor.cli.console import complain, emit, paint, width
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import SHORT_HELP, as_json, codes, color
from ckptdoctor.engine.request import FixRequest, substitution
from ckptdoctor.engine.selection import Selection
from ckptdoctor.errors import CkptDoctorError, UnreadableError, UsageError
from ckptdoctor.findings import RepairReport


@click.command("fix", context_settings=SHORT_HELP)
@click.argument("path")
@click.option("-o", "--output", metavar="OUT", help="The file to write, or a directory.  [default: PATH.fixed.EXT]")
@click.option("--strip-module", is_flag=True, help='Strip what training wrappers put before keys: "module." and such.')
@click.option("--strip-prefix", "strip_prefixes", multiple=True, metavar="P", help="Strip this prefix from keys.")
@click.option("--add-prefix", metavar="P", help="Put this prefix before keys.")
@click.option("--rename", "renames", multiple=True, metavar="REGEX=REPL", help="Substitute in keys.")
@click.option("--to-cpu", is_flag=True, help="Bring every tensor to the CPU.")
@click.option("--drop", multiple=True, metavar="PATTERN", help="Drop what matches: a key, or a path such as optimizer.")
@click.option("--keep", multiple=True, metavar="PATTERN", help="Keep only what matches.")
@click.option("--root", metavar="KEY", help='Make one part the whole contents, such as "state_dict".')
@codes("--select", "Only the repairs of these rules: codes, names or prefixes, separated by commas.")
@click.option("--unsafe-fixes", "unsafe", is_flag=True, help="Also repairs that change or drop something.")
@click.option("--diff", is_flag=True, help="Show every name that would change, and write nothing.")
@click.option("--force", is_flag=True, help="Replace an existing output, even the original itself.")
@as_json
@color
def command(path: str, diff: bool, style: str, color: str, **asked: Any) -> ExitStatus:
    """Repair a checkpoint without losing anything.

    With nothing named, every safe repair of what check finds is applied; with options, just those: first --root,
    then --drop and --keep, --strip-module, --strip-prefix, --rename, --add-prefix, --to-cpu, and last --select. The
    output is verified before it gets its name, and the original is never touched. Exit status: 0 repaired and
    verified, or nothing to repair; 1 something asked for was refused or remains; 2 the request makes no sense, or
    the path cannot be read.
    """
    voice = _Voice(path, style, color, diff)
    request = _request(path, **asked)
    try:
        report = _carried_out(request, diff)
    except (UsageError, UnreadableError):
        raise
    except CkptDoctorError as error:
        voice.refuse(error)
        return ExitStatus.FINDINGS
    voice.tell(report)
    return ExitStatus.FINDINGS if asked["select"] and report.left else ExitStatus.CLEAN


def _request(path: str, select: tuple[str, ...] | None, renames: tuple[str, ...], **asked: Any) -> FixRequest:
    """The command line; where it names no change at all, the project's configuration says which rules matter."""
    request = FixRequest(path, renames=tuple(map(substitution, renames)), selection=Selection(select), **asked)
    if request.named or select is not None:
        return request
    project = config.load()
    return replace(request, selection=Selection(project.select, project.ignore or (), project.extend_select or ()))


def _carried_out(request: FixRequest, diff: bool) -> RepairReport:
    from ckptdoctor.engine.plan import plan
    from ckptdoctor.engine.repair import preview, repair

    planned = plan(request)
    return preview(planned) if diff else repair(planned).report


@dataclass
class _Voice:
    """Says what became of the repair, in one style."""

    path: str
    style: str
    color: str
    diff: bool

    def tell(self, report: RepairReport) -> None:
        from ckptdoctor.report import fix_json, fix_text

        if self.style == "json":
            from ckptdoctor import __version__

            emit(fix_json.render(report, __version__))
        elif self.diff:
            emit(fix_text.difference(report, paint(self.color)))
        else:
            emit(fix_text.outcome(report, paint(self.color), width()))

    def refuse(self, error: CkptDoctorError) -> None:
        from ckptdoctor.report import fix_json, fix_text

        if self.style == "json":
            from ckptdoctor import __version__

            emit(fix_json.refused(self.path, error.message, __version__))
            complain(error.message.split("\n")[0])
        else:
            emit(fix_text.refused(error.message, paint(self.color)))
