"""One connection to one server at a time, kept open between requests; through the proxy of the environment, if any."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from ckptdoctor import __version__
from ckptdoctor.remote.answers import TooSlow

_TIMEOUT = 30.0  # seconds, for connecting and between two packets
_PATIENCE = 30.0  # seconds, for a whole answer without its body
_SLOWEST = 16 << 10  # bytes in a second that a body must have, beside that


class Connection:
    """Asks for addresses; what is open stays open as long as the next address has the same server."""

    def __init__(self) -> None:
        self._open: HTTPConnection | None = None
        self._answer: HTTPResponse | None = None
        self._server: tuple[str, str] | None = None
        self._absolute = False
        self._socket: socket.socket | None = None

    def get(self, url: SplitResult, headers: dict[str, str]) -> HTTPResponse:
        """The answer to a GET; its body must be read, or the connection closed. Raises OSError or HTTPException."""
        server = (url.scheme, url.netloc.rpartition("@")[2])
        if self._open is None or self._server != server:
            self.close()
            self._open, self._absolute = _connected(url)
            self._server = server
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        target = f"{url.scheme}://{server[1]}{path}" if self._absolute else path
        wanted = {"User-Agent": f"ckptdoctor/{__version__}", "Accept": "*/*", "Accept-Encoding": "identity", **headers}
        with self.patient():
            self._open.request("GET", target, headers=wanted)
            self._socket = self._open.sock  # which the answer takes over where it is the last one
            self._answer = self._open.getresponse()
        return self._answer

    @contextmanager
    def patient(self, length: int = 0) -> Iterator[None]:
        """Cut the connection where ``length`` bytes take far too long, and raise TooSlow.

        The limit between two packets does not help against a server that sends byte after byte without an end.
        """
        slow = threading.Event()

        def cut() -> None:
            slow.set()
            with suppress(OSError):
                if self._socket is not None:
                    self._socket.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(_PATIENCE + length / _SLOWEST, cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        except Exception:  # whatever a socket that was shut down says; every other error goes on its way
            if not slow.is_set():
                raise
        finally:
            timer.cancel()
        if slow.is_set():
            raise TooSlow

    def close(self) -> None:
        """Close what is open: the last answer, too, which has the socket to itself where no other can follow."""
        if self._answer is not None:
            self._answer.close()
            self._answer = None
        if self._open is not None:
            self._open.close()
            self._open = None


def _connected(url: SplitResult) -> tuple[HTTPConnection, bool]:
    """A connection, and whether its proxy wants the whole address with each request."""
    host = url.hostname or ""
    proxy = getproxies().get(url.scheme) if not proxy_bypass(host) else None
    kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
    if proxy is None:
        return kind(host, url.port, timeout=_TIMEOUT), False
    through = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if url.scheme == "https":
        made = HTTPSConnection(through.hostname or "", through.port or 80, timeout=_TIMEOUT)
        name = basic(through)
        made.set_tunnel(host, url.port or 443, {"Proxy-Authorization": name} if name else {})
        return made, False
    return HTTPConnection(through.hostname or "", through.port or 80, timeout=_TIMEOUT), True


def basic(url: SplitResult) -> str:
    """The header value that says the user name and password of an address; "" where it has none."""
    if not url.username:
        return ""
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
