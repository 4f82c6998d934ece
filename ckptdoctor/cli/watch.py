"""``ckptdoctor watch`` prints a line for each checkpoint of a run when it is complete."""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING

import click

from ckptdoctor.checkpoint.progress import Progress, heard, now_and_then
from ckptdoctor.cli.command import Choice, Command
from ckptdoctor.cli.console import emit, narrate, only_problems, paint, print_error
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import as_json, color, files, quiet
from ckptdoctor.cli.progress import ProgressBar

if TYPE_CHECKING:
    from ckptdoctor.watching.watch import Ended, Watcher

_EXAMPLES = (
    ("A line for each checkpoint that a training run saves from now on", "ckptdoctor watch run"),
    ("Until step 10,000 is saved, or something is wrong", "ckptdoctor watch run --until 10000 --fail-on invalid"),
    ("Each checkpoint that is there, in a script", "ckptdoctor watch run --once --fail-on invalid"),
)
_GROUPS = {
    "End": ("once", "until", "timeout", "pid", "fail_on"),
    "Look": ("headers_only", "interval"),
    "Output": ("style", "quiet", "color"),
}
_WAITING = "waiting for the next checkpoint"


@click.command("watch", cls=Command, examples=_EXAMPLES, groups=_GROUPS)
@click.argument("run", shell_complete=files)
@click.option("--once", is_flag=True, help="Print a line for each checkpoint that is there now, then end.")
@click.option(
    "--until",
    type=click.IntRange(min=0),
    metavar="STEP",
    help="End after a checkpoint of this step, or epoch, or later.",
)
@click.option("--timeout", type=float, metavar="SECONDS", help="End with status 1 after this long without a new one.")
@click.option("--pid", type=click.IntRange(min=1), help="End after a last look when this process has ended.")
@click.option(
    "--fail-on",
    type=Choice(["invalid", "unresumable", "never"]),
    default="never",
    show_default=True,
    help="End with status 1 at the first checkpoint that is invalid, or that training cannot resume from.",
)
@click.option("--headers-only", is_flag=True, help="Read no values: neither checksums, nor NaN, nor distances.")
@click.option(
    "--interval",
    type=float,
    metavar="SECONDS",
    help="Seconds between looks.  [default: 2, or 30 for an address]",
)
@as_json
@quiet
@color
def command(
    run: str,
    once: bool,
    until: int | None,
    timeout: float | None,
    pid: int | None,
    fail_on: str,
    headers_only: bool,
    interval: float | None,
    style: str,
    color: str,
) -> ExitStatus:
    """Print a line for each new checkpoint of a run when it is complete.

    RUN is the folder of a run, as for latest; without --once it need not exist yet. Each line has the step, the size,
    the time, how far the weights have moved since the checkpoint before, and what was proven: every byte is read.
    Checkpoints that are already there have no line, except with --once.

    Nothing is printed about a checkpoint that is still being written: its names, the file that the library writes last,
    and its headers show that, and sizes and times must be the same in two looks. One that stays cut off for a minute is
    invalid.

    Exit status: 0 ended as requested, 1 because of --fail-on or --timeout, or before --until, 2 invalid usage or a
    folder that cannot be listed, 130 Ctrl-C.
    """
    from ckptdoctor.rendering import watch as shown
    from ckptdoctor.watching.watch import Watcher, WatchRequest

    bar = ProgressBar(what=_WAITING)

    def wait(seconds: float) -> None:
        bar.hear(Progress(_WAITING, 0, 0))
        sleep(seconds)

    watcher = Watcher(WatchRequest(run, interval, once, until, timeout, pid, fail_on, headers_only), wait)
    try:
        with heard(now_and_then(bar.hear)):
            end = _told(watcher, bar, style, color)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(shown.ended("Stopped", watcher)) from None
    finally:
        bar.close()
    narrate(shown.ended(end.why, watcher))
    if end.well and end.unseen:
        return ExitStatus.TROUBLE
    return ExitStatus.CLEAN if end.well else ExitStatus.FINDINGS


def _told(watcher: Watcher, bar: ProgressBar, style: str, color: str) -> Ended:
    """Print each event when it comes, and return the last one."""
    from ckptdoctor.rendering import watch as shown
    from ckptdoctor.watching.watch import Began, Ended, Unseen

    reason = ""
    for event in watcher.events():
        bar.clear()
        if isinstance(event, Ended):
            return event
        if isinstance(event, Began):
            if not watcher.request.once:
                narrate(shown.began(event))
        elif isinstance(event, Unseen):
            print_error(event.why)
        elif not (only_problems.get() and event.valid):
            if style == "json":
                from ckptdoctor import __version__

                emit(shown.as_json(event, __version__))
            else:
                emit(shown.line(event, paint(color), resumable=event.unresumable != reason))
            reason = event.unresumable
    raise AssertionError("watching ends with an event that says why")
