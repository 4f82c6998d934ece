"""Files on web servers, part by part (RFC 9110, section 14), over one connection.

This is the standard library's client rather than fsspec's, which asks with HEAD first (signed addresses answer that
with 403) and reads all of a file from a server that ignores which part was asked for.
"""

from __future__ import annotations

import time
from http.client import HTTPException, HTTPResponse, IncompleteRead
from urllib.parse import SplitResult, urljoin, urlsplit

from ckptdoctor.errors import UnreadableError
from ckptdoctor.remote import answers
from ckptdoctor.remote.connection import Connection, basic
from ckptdoctor.remote.downloading import download_first
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

    ``headers`` go to the server of ``address`` only, never to one that it redirects to.
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
        try:
            self.head = self._attempted(0, HEAD_BYTES)
        except BaseException:
            self.close()
            raise

    def fetch(self, start: int, stop: int) -> bytes:
        """Exactly these bytes; what breaks off is taken up again. Raises UnreadableError."""
        if self._whole is not None:
            return self._whole[start:stop]
        data = b""
        for _ in range(_MOST_PIECES):
            data += self._attempted(start + len(data), stop)
            if start + len(data) >= stop:
                return data
        raise UnreadableError(f"{self._path}: its server breaks off again and again: {download_first(self._path)}")

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _attempted(self, start: int, stop: int) -> bytes:
        """Some of these bytes, from the first on, after as many attempts as it takes."""
        for delay in (*DELAYS, None):
            try:
                return self._part(start, stop)
            except _Transient as error:
                failure, wait = error.cause, error.delay
            except (OSError, HTTPException, ValueError) as error:
                failure, wait = answers.unreached(self._path, self._place.hostname or "", error), None
                if answers.is_final(error):
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
        if status == 416 and self.size < 0 and answers.told_range(response)[1] == 0:
            self.size = 0
            return b""
        if status in answers.DENIED + answers.GONE and self._place != self._origin:
            self._place = self._origin  # what the server redirected to has expired
            raise _Transient(answers.refused(self._path, status, response.reason, self._hint))
        failure = answers.refused(self._path, status, response.reason, self._hint)
        if status in answers.TRANSIENT:
            wait = response.headers.get("Retry-After", "")
            raise _Transient(failure, float(wait) if wait.isascii() and wait.isdigit() else None)
        raise failure

    def _answer(self, start: int, stop: int) -> HTTPResponse:
        """The answer, behind any redirections; where they led is remembered for the next part."""
        wanted = {"Range": f"bytes={start}-{stop - 1}"}
        for _ in range(_MOST_REDIRECTS):
            own = self._headers if _server(self._place) == _server(self._origin) else {}
            response = self._connection.get(self._place, {**wanted, **own})
            if response.status not in answers.REDIRECTS or not response.headers.get("Location"):
                return response
            empty = answers.told_length(response) == 0 and "Transfer-Encoding" not in response.headers
            response.read() if empty else self._connection.close()
            place = _split(urljoin(self._place.geturl(), response.headers["Location"]), self._path)
            if self._place.scheme == "https" and place.scheme == "http":
                raise UnreadableError(f"{self._path} leads to an address that is not encrypted, so it is not followed.")
            self._place = place
        raise UnreadableError(f"{self._path} leads from one address to the next without an end.")

    def _from_part(self, response: HTTPResponse, start: int, stop: int) -> bytes:
        begin, total = answers.told_range(response)
        if begin != start or total is None:
            self._connection.close()
            told = response.headers.get("Content-Range", "nothing")[:80]
            raise UnreadableError(
                f"{self._path}: its server sends another part than was asked for, or no size ({told}): "
                f"{download_first(self._path)}"
            )
        tag = response.headers.get("ETag")
        if self.size < 0:
            self.size, self._tag = total, tag
        elif (total, tag) != (self.size, self._tag):
            self._connection.close()
            raise UnreadableError(f"{self._path} changed while it was read: try it again.")
        self._insist_on_plain(response)
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
        """The whole of a small file, from a server that does not serve parts."""
        length = answers.told_length(response)
        self._insist_on_plain(response)
        with self._connection.patient(SMALL):
            data = b"" if (length or 0) > SMALL else _body(response, SMALL + 1 if length is None else length)
        if (length or 0) > SMALL or len(data) > SMALL:
            self._connection.close()
            size = "of a size that it does not tell" if length is None else f"of {plural(length, 'byte')}"
            raise UnreadableError(
                f"{self._path}: its server does not serve parts of files, and this is one {size}: "
                f"{download_first(self._path)}"
            )
        if length is not None and len(data) < length:
            cause = UnreadableError(f"{self._path}: its server breaks off after {len(data):,} of {length:,} bytes.")
            raise _Transient(cause)
        self._whole, self.size = data, len(data)
        return data

    def _insist_on_plain(self, response: HTTPResponse) -> None:
        coding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in ("identity", ""):
            self._connection.close()
            message = f"its server compresses what it sends ({coding[:20]}) though it was asked not to"
            raise UnreadableError(f"{self._path}: {message}: {download_first(self._path)}")


def _body(response: HTTPResponse, length: int) -> bytes:
    """At most so many bytes, fewer where the connection breaks off."""
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
        raise UnreadableError(f"{path} is no address that can be asked for: {error}.") from error
    if url.scheme not in ("http", "https") or not url.hostname or port == 0:
        raise UnreadableError(f"{path} leads to {url.scheme or 'nothing'}, which is no address of a web server.")
    return url._replace(fragment="", path=_encoded(url.path), query=_encoded(url.query))


def _encoded(text: str) -> str:
    """Blanks and letters beyond ASCII as a request line takes them; what is encoded already stays."""
    from urllib.parse import quote

    return quote(text, safe="/%:@!$&'()*+,;=~?-._")


def _server(url: SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, url.port
