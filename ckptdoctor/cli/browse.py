"""``ckptdoctor browse``: look inside."""

from __future__ import annotations

import os
import sys

import click

from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import SHORT_HELP
from ckptdoctor.cli.served import is_served, require_serve, serve, serve_options
from ckptdoctor.errors import UsageError


@click.command("browse", context_settings=SHORT_HELP)
@click.argument("path")
@click.argument("other", required=False, metavar="[PATH2]")
@click.option("--theme", metavar="NAME", help='Colours: "dark", "light", or the name of any theme of Textual.')
@serve_options
@click.pass_context
def command(
    context: click.Context, path: str, other: str | None, theme: str | None, **serving: object
) -> ExitStatus:
    """Look inside a checkpoint: modules, tensors, what is wrong.

    Only headers are read until values are looked at, and nothing in the file is ever run. The ? key shows all keys.
    """
    if serving["serve"] and not is_served():
        serve(context, path)
        return ExitStatus.CLEAN
    require_serve(context)
    if not is_served() and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(f"browse needs a terminal. Without one: ckptdoctor check {path}, or ckptdoctor show {path}.")
    if other is not None:
        raise UsageError(f"Two files are not compared here yet. Use: ckptdoctor diff {path} {other}")
    return ExitStatus(run(path, theme))


def run(path: str, theme: str | None = None) -> int:
    """Browse, and end the process as soon as the terminal is as it was: threads that still read are not waited for."""
    from ckptdoctor.tui import turns
    from ckptdoctor.tui.app import BrowserApp

    app = BrowserApp(path, theme={"dark": "ckptdoctor-dark", "light": "ckptdoctor-light"}.get(theme or "", theme))

    async def browse() -> None:
        await app.run_async()
        sys.stdout.flush()
        sys.stderr.flush()
        _abandon()
        os._exit(app.return_code or 0)

    turns.run(browse())
    return app.return_code or 0


def _abandon() -> None:
    """Leave no half a file behind, where one was being written."""
    repair = sys.modules.get("ckptdoctor.engine.repair")
    if repair is not None:
        repair.abandon()
