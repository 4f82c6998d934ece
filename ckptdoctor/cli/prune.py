"""``ckptdoctor prune`` says which checkpoints of a store may go, and moves them into a trash folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ckptdoctor.cli.command import Command
from ckptdoctor.cli.console import Lines, emit, narrate, print_error
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import as_json, files, quiet
from ckptdoctor.cli.progress import drawn

if TYPE_CHECKING:
    from ckptdoctor.pruning.plan import Plan
    from ckptdoctor.pruning.prune import Outcome
    from ckptdoctor.pruning.trash import Restored

_EXAMPLES = (
    ("See what can go if the last three of each run stay", "ckptdoctor prune store.db --keep-last 3"),
    (
        "Move it into the trash of the store",
        "ckptdoctor prune store.db --keep-last 3 --keep-every 1000 --apply",
    ),
)


@click.command(
    "prune",
    cls=Command,
    examples=_EXAMPLES,
    groups={
        "To keep": ("last", "every", "best", "metric", "broken"),
        "To move": ("apply", "trash"),
        "Output": ("style", "quiet"),
    },
)
@click.argument("inventory", required=False, metavar="STORE.db", shell_complete=files)
@click.option("--keep-last", "last", type=click.IntRange(1), metavar="N", help="The N newest valid ones of each run.")
@click.option(
    "--keep-every", "every", type=click.IntRange(1), metavar="STEPS", help="Those whose step is a multiple of this."
)
@click.option("--keep-best", "best", is_flag=True, help="Those with the best metric, as in val_loss=0.12.")
@click.option(
    "--metric", metavar="NAME[:min|:max]", default="", help="The metric of --keep-best, if there are several."
)
@click.option("--broken", is_flag=True, help="Let broken ones go, too, once a newer one is valid.")
@click.option("--apply", is_flag=True, help="Carry out the plan. Without it, nothing is moved.")
@click.option(
    "--restore", "trash", metavar="TRASH", shell_complete=files, help="Move everything in a trash folder back."
)
@as_json
@quiet
def command(
    inventory: str | None,
    last: int | None,
    every: int | None,
    best: bool,
    metric: str,
    broken: bool,
    apply: bool,
    trash: str | None,
    style: str,
) -> ExitStatus:
    """List the checkpoints of a store that can go, and move them.

    STORE.db is what ckptdoctor audit wrote. The plan names every checkpoint, and why it stays. Whatever you choose,
    each run keeps the newest valid one, the newest that training can resume from, what any of these needs, what a link
    points to, and what could not be examined. Files that hold different tensors, or whose names differ in more than
    numbers, do not replace each other.

    With --apply, every byte of the newest ones is read first, anything that has changed since the audit stays, and the
    rest is moved into .ckptdoctor-trash in the store. Nothing is deleted: that is left to you.

    Exit status: 0 done, 1 something that should have gone or come back stayed where it is, 2 invalid usage, or an
    inventory that cannot be used.
    """
    from ckptdoctor.errors import UsageError
    from ckptdoctor.pruning.inventory import require_one

    require_one(inventory, trash)
    if trash is not None:
        if last or every or best or metric or broken or apply:
            raise UsageError("--restore brings everything back, and takes no other option.")
        return _restored(trash, style)
    assert inventory is not None
    return _pruned(inventory, last or 0, every or 0, best, metric, broken, apply, style)


def _pruned(
    inventory: str, last: int, every: int, best: bool, metric: str, broken: bool, apply: bool, style: str
) -> ExitStatus:
    from time import time

    from ckptdoctor.errors import UsageError
    from ckptdoctor.pruning.inventory import holdings
    from ckptdoctor.pruning.plan import Policy, plan
    from ckptdoctor.pruning.prune import carry_out
    from ckptdoctor.rendering import prune as shown

    if metric and not best:
        raise UsageError("--metric goes with --keep-best.")
    found = holdings(inventory, time())
    made = plan(found.checkpoints, Policy(last, every, best, metric, broken), found.pins)
    if not apply:
        if style == "json":
            emit(_json(made, [], applied=False))
        else:
            emit(shown.planned(made))
            if made.going:
                narrate("Nothing was moved. To move what may go into the trash of its store, add --apply.")
        return ExitStatus.CLEAN
    lines = Lines()
    outcomes: list[Outcome] = []
    if style != "json":
        lines.emit(shown.planned(made))
    try:
        with drawn("Interrupted: what was moved is in the trash, complete.", what="reading what stays") as bar:
            for each in carry_out(found, made):
                outcomes.append(each)
                if style != "json":
                    bar.clear()
                    lines.emit(shown.moved(each))
    except (Exception, KeyboardInterrupt):  # whatever it was: what was moved until then can be brought back
        if style == "json" and outcomes:
            lines.emit(_json(made, outcomes, applied=True))
        print_error(shown.done(outcomes))
        raise
    lines.emit(_json(made, outcomes, applied=True) if style == "json" else shown.done(outcomes))
    _end(lines, shown.done(outcomes))
    return ExitStatus.FINDINGS if any(each.trouble for each in outcomes) else ExitStatus.CLEAN


def _json(made: Plan, outcomes: Sequence[Outcome], *, applied: bool) -> str:
    from ckptdoctor import __version__
    from ckptdoctor.rendering import prune as shown

    return shown.as_json(made, outcomes, __version__, applied=applied)


def _end(lines: Lines, done: str) -> None:
    """Print on stderr what was done where nobody read that on stdout. Raises OSError for a disk that is full."""
    if lines.lost is not None:
        print_error(done)
        if not isinstance(lines.lost, BrokenPipeError):
            raise lines.lost


def _restored(trash: str, style: str) -> ExitStatus:
    from ckptdoctor import __version__
    from ckptdoctor.pruning.trash import restored
    from ckptdoctor.rendering import prune as shown

    lines = Lines()
    every: list[Restored] = []
    try:
        for each in restored(trash):
            every.append(each)
            if style != "json":
                lines.emit(shown.restored(each))
    except (Exception, KeyboardInterrupt):
        if every:
            if style == "json":
                lines.emit(shown.restored_json(trash, every, __version__))
            print_error(shown.came_back(trash, every, over=False))
        raise
    if style == "json":
        lines.emit(shown.restored_json(trash, every, __version__))
    elif not every:
        lines.emit(f"Nothing is in {trash}: all of it is back.")
    _end(lines, shown.came_back(trash, every, over=True))
    return ExitStatus.FINDINGS if any(each.trouble for each in every) else ExitStatus.CLEAN
