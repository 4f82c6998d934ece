"""Reads files on web servers, part by part (RFC 9110, section 14), over one connection.

This is the standard library's client rather than fsspec's, which asks with HEAD first (signed addresses answer that
with 403) and reads all of a file from a server that ignores which part was asked for.
"""

from __future__ import annotations

import base64
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from ckptdoctor import __version__
from ckptdoctor.errors import UnreadableError
from ckptdoctor.remote.downloading import download_first
from ckptdoctor.remote.published import Published, in_headers
from ckptdoctor.remote.source import HEAD_BYTES
from ckptdoctor.wording import plural

# a file of at most so many bytes is read whole where its server does not serve parts
SMALL = 16 << 20

# seconds before each further attempt; a connection that was kept open may have been closed meanwhile
DELAYS = (0.0, 0.5, 1.0, 2.0)
_LONGEST_DELAY = 10.0
_MOST_REDIRECTS = 8
_MOST_PIECES = 100  # in which a part may come, each behind a connection that broke off


class _Transient(Exception):
    """An answer that may be another one with the next attempt."""

    def __init__(self, cause: UnreadableError, delay: float | None = None) -> None:
        super().__init__(cause.message)
        self.cause = cause
        self.delay = delay


class HttpFile:
    """A file on a web server; ``path`` is its address in messages, ``hint`` what may help where it is refused.

    ``headers`` go to the server of ``address`` only, never to one that it redirects to. ``published`` are the hashes of
    the whole file that the servers on the way have said.
    Raises UnreadableError where there is no such file, it cannot be reached, or it is large and cannot be had in parts.
    """

    def __init__(self, address: str, path: str, headers: dict[str, str] | None = None, hint: str = "") -> None:
        self._path = path
        self._hint = hint
        self._origin = self._place = _split(address, path)
        self._headers = dict(headers or {})
        if basic(self._origin):
            self._headers.setdefault("Authorization", basic(self._origin))
        self._connection = Connection()
        self._tag: str | None = None
        self.size = -1
        self._whole: bytes | None = None
        self.published: tuple[Published, ...] = ()
        try:
            self.head = self._attempted(0, HEAD_BYTES)
        except BaseException:
            self.close()
            raise

    def fetch(self, start: int, stop: int) -> bytes:
        """Return exactly these bytes; what breaks off is taken up again. Raises UnreadableError."""
        if self._whole is not None:
            return self._whole[start:stop]
        data = b""
        for _ in range(_MOST_PIECES):
            data += self._attempted(start + len(data), stop)
            if start + len(data) >= stop:
                return data
        raise UnreadableError(f"{self._path}: its server keeps breaking off: {download_first(self._path)}")

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _attempted(self, start: int, stop: int) -> bytes:
        """Return some of these bytes, from the first on, after as many attempts as it takes."""
        for delay in (*DELAYS, None):
            try:
                return self._part(start, stop)
            except _Transient as error:
                failure, wait = error.cause, error.delay
            except (OSError, HTTPException, ValueError) as error:
                failure, wait = unreached(self._path, self._place.hostname or "", error), None
                if is_final(error):
                    raise failure from error
            self._connection.close()
            if delay is None:
                raise failure
            time.sleep(min(_LONGEST_DELAY, delay if wait is None else wait))
        raise AssertionError("the last attempt returns or raises")

    def _part(self, start: int, stop: int) -> bytes:
        response = self._answer(start, stop)
        status = response.status
        if status == 206:
            return self._from_part(response, start, stop)
        if status == 200 and self.size < 0:
            return self._from_whole(response)
        self._connection.close()  # the body of any other answer is not read
        if status == 200:
            raise UnreadableError(
                f"{self._path}: its server no longer serves parts of it: {download_first(self._path)}"
            )
        if status == 416 and self.size < 0 and told_range(response)[1] == 0:
            self.size = 0
            return b""
        if status in DENIED + GONE and self._place != self._origin:
            self._place = self._origin  # what the server redirected to has expired
            raise _Transient(refused(self._path, status, response.reason, self._hint))
        failure = refused(self._path, status, response.reason, self._hint)
        if status in TRANSIENT:
            wait = response.headers.get("Retry-After", "")
            raise _Transient(failure, float(wait) if wait.isascii() and wait.isdigit() else None)
        raise failure

    def _answer(self, start: int, stop: int) -> HTTPResponse:
        """Return the answer, behind any redirections; where they led is remembered for the next part."""
        wanted = {"Range": f"bytes={start}-{stop - 1}"}
        for _ in range(_MOST_REDIRECTS):
            own = self._headers if _server(self._place) == _server(self._origin) else {}
            response = self._connection.get(self._place, {**wanted, **own})
            if response.status in (200, 206, *REDIRECTS):
                self.published = tuple(dict.fromkeys((*self.published, *in_headers(response.headers))))
            if response.status not in REDIRECTS or not response.headers.get("Location"):
                return response
            empty = told_length(response) == 0 and "Transfer-Encoding" not in response.headers
            response.read() if empty else self._connection.close()
            place = _split(urljoin(self._place.geturl(), response.headers["Location"]), self._path)
            if self._place.scheme == "https" and place.scheme == "http":
                raise UnreadableError(f"{self._path} leads to an address that is not encrypted, so it is not followed.")
            self._place = place
        raise UnreadableError(f"{self._path} redirects endlessly.")

    def _from_part(self, response: HTTPResponse, start: int, stop: int) -> bytes:
        begin, total = told_range(response)
        if begin != start or total is None:
            self._connection.close()
            told = response.headers.get("Content-Range", "nothing")[:80]
            raise UnreadableError(
                f"{self._path}: its server sends a different part from the requested one, or no size "
                f"({told}): {download_first(self._path)}"
            )
        tag = response.headers.get("ETag")
        if self.size < 0:
            self.size, self._tag = total, tag
        elif (total, tag) != (self.size, self._tag):
            self._connection.close()
            raise UnreadableError(f"{self._path} changed while it was read: try again.")
        self._require_plain(response)
        length = min(stop, total) - start
        with self._connection.patient(length):
            data = _body(response, length)
        if len(data) < length:
            self._connection.close()
            if not data:
                cause = UnreadableError(f"{self._path}: its server breaks off each time at byte {start:,}.")
                raise _Transient(cause)
        return data

    def _from_whole(self, response: HTTPResponse) -> bytes:
        """Return the whole of a small file, from a server that does not serve parts."""
        length = told_length(response)
        self._require_plain(response)
        with self._connection.patient(SMALL):
            data = b"" if (length or 0) > SMALL else _body(response, SMALL + 1 if length is None else length)
        if (length or 0) > SMALL or len(data) > SMALL:
            self._connection.close()
            size = "of unknown size" if length is None else f"of {plural(length, 'byte')}"
            raise UnreadableError(
                f"{self._path}: its server does not serve parts of files, and this is one {size}: "
                f"{download_first(self._path)}"
            )
        if length is not None and len(data) < length:
            cause = UnreadableError(f"{self._path}: its server breaks off after {len(data):,} of {length:,} bytes.")
            raise _Transient(cause)
        self._whole, self.size = data, len(data)
        return data

    def _require_plain(self, response: HTTPResponse) -> None:
        coding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in ("identity", ""):
            self._connection.close()
            message = f"its server compresses what it sends ({coding[:20]}) although asked not to"
            raise UnreadableError(f"{self._path}: {message}: {download_first(self._path)}")


def _body(response: HTTPResponse, length: int) -> bytes:
    """Return at most so many bytes, fewer where the connection breaks off."""
    chunks: list[bytes] = []
    have = 0
    try:
        while have < length:
            chunk = response.read(min(1 << 20, length - have))
            if not chunk:
                break
            chunks.append(chunk)
            have += len(chunk)
    except IncompleteRead as error:
        chunks.append(error.partial)
    except OSError:
        if not chunks:
            raise
    return b"".join(chunks)


def _split(address: str, path: str) -> SplitResult:
    try:
        url = urlsplit(address)
        port = url.port
    except ValueError as error:
        raise UnreadableError(f"{path} is not a valid address: {error}.") from error
    if url.scheme not in ("http", "https") or not url.hostname or port == 0:
        raise UnreadableError(f"{path} leads to {url.scheme or 'nothing'}, which is not a web address.")
    return url._replace(fragment="", path=_encoded(url.path), query=_encoded(url.query))


def _encoded(text: str) -> str:
    """Return blanks and letters beyond ASCII as a request line takes them; what is encoded already stays."""
    from urllib.parse import quote

    return quote(text, safe="/%:@!$&'()*+,;=~?-._")


def _server(url: SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, url.port


# ---- one connection to one server at a time, kept open between requests; through the proxy of the environment, if any


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
        """Return the answer to a GET; its body must be read, or the connection closed.

        Raises OSError or HTTPException.
        """
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
    """Return a connection, and whether its proxy wants the whole address with each request."""
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
    """Return the header value that says the user name and password of an address, or "" where it has none."""
    if not url.username:
        return ""
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


REDIRECTS = (301, 302, 303, 307, 308)
# those that may be gone with the next attempt
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
DENIED = (401, 403)
GONE = (404, 410)

_RANGE = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)", re.ASCII)


def told_range(response: HTTPResponse) -> tuple[int | None, int | None]:
    """Return the beginning of the part that was sent, and the size of the whole file, or None for what is not said."""
    match = _RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    if match is None:
        return None, None
    start, _, total = match.groups()
    return None if start is None else int(start), None if total == "*" else int(total)


def told_length(response: HTTPResponse) -> int | None:
    """Return the length of a body, where it is said."""
    text = response.headers.get("Content-Length", "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def refused(path: str, status: int, reason: str, hint: str) -> UnreadableError:
    """Return the error for an answer that is not a file."""
    if status in GONE:
        return UnreadableError(f"{path} does not exist (the server answers {status}). Check the address.{hint}")
    if status in DENIED:
        why = "it is private, or the address has expired"
        return UnreadableError(f"{path}: access denied (the server answers {status}): {why}.{hint}")
    if status in TRANSIENT:
        return UnreadableError(f"{path} cannot be read now (the server keeps answering {status}). Try again later.")
    words = "".join(filter(str.isprintable, reason))[:80]
    return UnreadableError(f"{path} cannot be read: the server answers {status} {words}".rstrip() + ".")


class TooSlow(TimeoutError):
    """An answer came, but so slowly that it was not waited for."""


def is_final(error: Exception) -> bool:
    """Return whether another attempt cannot help."""
    return isinstance(
        error, (TooSlow, ssl.SSLCertVerificationError, socket.gaierror, ConnectionRefusedError, ValueError)
    )


def unreached(path: str, host: str, error: Exception) -> UnreadableError:
    """Return the error when there was no answer, or none that could be understood."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message or "it does not belong to the server"
        return UnreadableError(f"{path}: the certificate of {host} is not trusted ({why}), so nothing was read.")
    if isinstance(error, socket.gaierror):
        return UnreadableError(f"{path}: the host {host} was not found. Check the URL and your network.")
    if isinstance(error, ConnectionRefusedError):
        return UnreadableError(f"Connection refused by {host}. Check the URL: {path}")
    if isinstance(error, TooSlow):
        return UnreadableError(f"{path}: {host} is too slow. Try again later, or download the file by other means.")
    if isinstance(error, TimeoutError):
        return UnreadableError(
            f"{path}: {host} did not answer in time. Try again later, or download the file by other means."
        )
    why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return UnreadableError(f"{path}: the connection to {host} failed repeatedly ({why[:200]}). Try again later.")
