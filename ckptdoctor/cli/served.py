"""``browse --serve``: its options, and how the same command is run again for everyone who opens the page."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import click

from ckptdoctor.errors import UnreadableError, UsageError

_OPTIONS = (
    click.option("--serve", is_flag=True, help="Show it as a web page; needs pip install 'ckptdoctor[web]'."),
    click.option("--host", metavar="HOST", help="With --serve: where to listen.  [default: 127.0.0.1, this machine]"),
    click.option("--port", type=click.IntRange(0, 65535), help="With --serve: at which port.  [default: 8000]"),
)
_OWN = ("serve", "host", "port")


def serve_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--serve``, ``--host`` and ``--port``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def is_served() -> bool:
    """Whether this process is what a page shows: textual-serve tells it so, and it has no terminal."""
    return "TEXTUAL_DRIVER" in os.environ


def serve(context: click.Context, path: str) -> None:
    """Serve this command as a page, until ctrl+c."""
    from ckptdoctor.checkpoint import addresses
    from ckptdoctor.tui import serving

    if not addresses.is_address(path) and not os.path.exists(path):
        raise UnreadableError(f"{path} cannot be opened: No such file or directory.")
    host, port = context.params["host"], context.params["port"]
    serving.serve(path, list(_again(context)), host or serving.HOST, serving.PORT if port is None else port)


def require_serve(context: click.Context) -> None:
    """Raises UsageError where a host or a port is named, but nothing is served."""
    named = [f"--{name}" for name in _OWN[1:] if context.params[name] is not None]
    if named:
        raise UsageError(f"{' and '.join(named)} are for --serve." if named[1:] else f"{named[0]} is for --serve.")


def _again(context: click.Context) -> Iterator[str]:
    """The command's options and arguments, without those of serving."""
    given = [(each, context.params.get(each.name or "")) for each in context.command.params if each.name not in _OWN]
    for option, value in given:
        if isinstance(option, click.Option) and value not in (None, False, ()):
            yield from [option.opts[0]] if option.is_flag else [option.opts[0], str(value)]
    yield "--"
    yield from [str(value) for option, value in given if isinstance(option, click.Argument) and value is not None]
