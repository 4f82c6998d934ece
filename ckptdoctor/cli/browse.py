"""``ckptdoctor browse`` opens the browser."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import click

from ckptdoctor.checkpoint import process
from ckptdoctor.cli.exit_status import ExitStatus
from ckptdoctor.cli.options import WithModel, files, reference_options
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.errors import UsageError
from ckptdoctor.examine.paths import require_openable
from ckptdoctor.shell import quote

_OPTIONS = (
    click.option("--serve", is_flag=True, help="Serve it as a web page; needs pip install 'ckptdoctor[web]'."),
    click.option("--host", metavar="HOST", help="With --serve: the address.  [default: 127.0.0.1, this machine only]"),
    click.option("--port", type=click.IntRange(0, 65535), help="With --serve: the port.  [default: 8000]"),
)
_OWN = ("serve", "host", "port")


def serve_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decorator that adds ``--serve``, ``--host`` and ``--port``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def is_served() -> bool:
    """Return whether this process is what a page shows: textual-serve tells it so, and it has no terminal."""
    return "TEXTUAL_DRIVER" in os.environ


def serve(context: click.Context, path: str) -> None:
    """Serve this command as a page, until ctrl+c."""
    from ckptdoctor.remote import addresses
    from ckptdoctor.tui import serving
    from ckptdoctor.tui.themes import named

    if not addresses.is_address(path) and not os.path.exists(path):
        from ckptdoctor.checkpoint.missing import missing

        raise missing(path)
    host, port, theme = [context.params[each] for each in ("host", "port", "theme")]
    named(theme)  # what is not there is said here, and not in every page
    place = host or serving.HOST, serving.PORT if port is None else port
    serving.serve(path, list(_again(context)), *place, theme=theme)


def require_serve(context: click.Context) -> None:
    """Raises UsageError where a host or a port is named, but nothing is served."""
    named = [f"--{name}" for name in _OWN[1:] if context.params[name] is not None]
    if named:
        raise UsageError(f"{' and '.join(named)} are for --serve." if named[1:] else f"{named[0]} is for --serve.")


def _again(context: click.Context) -> Iterator[str]:
    """Yield the command's options and arguments, without those of serving."""
    given = [(each, context.params.get(each.name or "")) for each in context.command.params if each.name not in _OWN]
    for option, value in given:
        if isinstance(option, click.Option) and value not in (None, False, ()):
            yield from [option.opts[0]] if option.is_flag else [option.opts[0], str(value)]
    yield "--"
    yield from [str(value) for option, value in given if isinstance(option, click.Argument) and value is not None]


_EXAMPLES = (
    ("One checkpoint", "ckptdoctor browse model.pt"),
    ("Two of them side by side", "ckptdoctor browse before.pt after.pt"),
)


@click.command("browse", cls=WithModel, examples=_EXAMPLES)
@click.argument("path", default=".", required=False, shell_complete=files)
@click.argument("other", required=False, metavar="[PATH2]", shell_complete=files)
@reference_options
@click.option("--root", metavar="KEY", help='The part of the file to check, such as "state_dict".')
@click.option("--deep", is_flag=True, help="Read every byte and value at once: checksums, NaN, differences.")
@click.option("--theme", metavar="NAME", help='Colours: "dark", "light", or the name of any Textual theme.')
@serve_options
def command(
    path: str,
    other: str | None,
    model: str | None,
    config: str | None,
    like: str | None,
    root: str | None,
    deep: bool,
    theme: str | None,
    **serving: object,
) -> ExitStatus:
    """Browse a checkpoint in the terminal, or two side by side.

    With a folder of checkpoints, or without a path, it shows those that are there to choose from. The ? key lists all
    keys. Only headers are read until you look at values, and nothing in the file is ever run.

    Exit status: 0 closed, 2 invalid usage or an unreadable path.
    """
    if serving["serve"] and not is_served():
        serve(click.get_current_context(), path)
        return ExitStatus.CLEAN
    require_serve(click.get_current_context())
    if not is_served() and not (sys.stdin.isatty() and sys.stdout.isatty()):
        word = quote(path)
        raise UsageError(f"browse needs a terminal. Without one: ckptdoctor check {word}, or ckptdoctor show {word}.")
    settings = Settings(model=model, config=config, like=like, root=root, deep=deep)
    return ExitStatus(run(path, theme, settings, other))


def run(path: str, theme: str | None = None, settings: Settings | None = None, other: str | None = None) -> int:
    """Browse, and end the process as soon as the terminal is as it was: threads that still read are not waited for.

    SIGTERM and SIGINT end it in the same way, with status 143 and 130 (on its terminal ctrl+c is a key), and SIGHUP at
    once, with 129: the terminal is gone.
    """
    for each in (path, other, settings.like if settings is not None else None):
        if each is not None and not is_served():  # a page has nowhere else to say it
            require_openable(each)

    from ckptdoctor import config  # from here on a third of a second is imports: what is not there is said before
    from ckptdoctor.tui import thread_priority
    from ckptdoctor.tui.app import BrowserApp
    from ckptdoctor.tui.keys import understood
    from ckptdoctor.tui.themes import named

    project = config.load()
    try:
        keys = understood(project.keys or {})
    except UsageError as error:
        raise UsageError(f"{project.path}: {error.message}") from error
    app = BrowserApp(path, settings, named(theme), keys, other)

    async def browse() -> None:
        _listen(lambda number: app.exit(return_code=128 + number))
        await app.run_async()
        sys.stdout.flush()
        sys.stderr.flush()
        process.leave(app.return_code or 0)

    thread_priority.run(browse())
    return app.return_code or 0


def _listen(leave: Callable[[int], None]) -> None:
    """Have the signals that end a process leave no half a file behind, nor the terminal as the browser had it."""
    from asyncio import get_running_loop

    loop = get_running_loop()
    with suppress(NotImplementedError):  # the event loop of Windows hears of no signals
        loop.add_signal_handler(signal.SIGTERM, leave, signal.SIGTERM)
        loop.add_signal_handler(signal.SIGINT, leave, signal.SIGINT)
        loop.add_signal_handler(signal.SIGHUP, process.leave, 128 + signal.SIGHUP)
