"""Serves the browser as a web page, through textual-serve, which starts a new one for everyone: ``browse --serve``.

Whoever reaches the page can read the file and write repaired ones, as the person who started it can. So it is for this
machine alone unless another host is asked for, and pages of other sites get no answer: they could otherwise use the
web browser of somebody who looks at them to come in. The page is made of files of textual-serve and of its own; nothing
of it comes from elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from ckptdoctor.errors import UsageError
from ckptdoctor.rendering.escape import escape
from ckptdoctor.tui.themes import theme_named

HOST, PORT = "127.0.0.1", 8000
_MISSING = "Serving needs textual-serve: pip install 'ckptdoctor[web]'."
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})


def serve(path: str, arguments: Sequence[str], host: str = HOST, port: int = PORT, *, theme: str | None = None) -> None:
    """Serve ``ckptdoctor browse ARGUMENTS``, which opens ``path``, until ctrl+c. Raises UsageError when it cannot.

    ``theme`` is the one that ARGUMENTS name: what the page has around the terminal is in its colours.
    """
    try:
        import aiohttp_jinja2
        from textual_serve.server import Server
    except ImportError as error:
        raise UsageError(_MISSING) from error
    port = _free(host, port)

    class Serving(Server):
        """Says where it is, and answers only pages of its own."""

        pages: ClassVar[set[Any]] = set()  # tasks, each of a page that is open

        def initialize_logging(self) -> None:
            """Say nothing of every request."""
            logging.basicConfig(level="ERROR", format="%(message)s")

        async def on_startup(self, app: Any) -> None:
            """Say where it is, and for whom, once it answers: this is called before it listens."""
            aiohttp_jinja2.get_env(app).globals["theme"] = theme_named(theme).to_color_system().generate()
            self.announcing = asyncio.create_task(_announce(announcement(path, host, port), host, port))

        async def handle_index(self, request: Any) -> Any:
            """Return the page, to nobody but those that may enter."""
            _refuse_strangers(request, host)
            return await super().handle_index(request)

        async def handle_websocket(self, request: Any) -> Any:
            """Send the page what it shows, and take the keys that are pressed in it."""
            _refuse_strangers(request, host)
            page = asyncio.current_task()
            self.pages.add(page)
            try:
                return await super().handle_websocket(request)
            finally:
                self.pages.discard(page)

        async def on_shutdown(self, app: Any) -> None:
            """End what pages show: aiohttp would wait a minute for them."""
            pages = tuple(self.pages)
            for each in pages:
                each.cancel()
            await asyncio.gather(*pages, return_exceptions=True)

    templates = Path(__file__).with_name("web")
    name = os.path.basename(path) or path
    Serving(_command(arguments), host, port, f"{name} · ckptdoctor", templates_path=templates).serve()


async def _announce(text: str, host: str, port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError:  # not yet
            await asyncio.sleep(0.02)
            continue
        writer.close()
        print(text, flush=True)
        return


def announcement(path: str, host: str, port: int) -> str:
    """Return what is printed once the page is there."""
    shown = f"[{host}]" if ":" in host else host
    who = "for this machine only" if host in _HERE else "for EVERYONE who can reach this machine, without a password"
    return f"{escape(path)} is served on http://{shown}:{port}, {who}. Press ctrl+c to stop."


def may_enter(host: str | None, origin: str | None, bound: str) -> bool:
    """Return whether a request for ``host``, from a page of ``origin`` (None: from no page), comes from our own page.

    ``bound`` is where we listen: on this machine only, no other name of it is right (a name of another site may lead
    here as well).
    """
    named = urlsplit(f"//{host or ''}")
    if bound in _HERE and named.hostname not in _HERE:
        return False
    return origin is None or urlsplit(origin).netloc == named.netloc


def _refuse_strangers(request: Any, bound: str) -> None:
    from aiohttp.web import HTTPForbidden

    if not may_enter(request.headers.get("Host"), request.headers.get("Origin"), bound):
        raise HTTPForbidden(text="Other sites may not use this page.")


def _command(arguments: Sequence[str]) -> str:
    """Return the command by which a shell starts the browser."""
    words = [sys.executable, "-m", "ckptdoctor", "browse", *arguments]
    return subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)


def _free(host: str, port: int) -> int:
    """Return the port; any that is free for 0. Raises UsageError for one that is taken, or a host that is not here."""
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            return int(probe.getsockname()[1])
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"Cannot serve on {escape(host)}:{port}: {reason}. Choose another address with --host and --port."
        ) from None
