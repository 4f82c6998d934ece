"""What a server's answer means, and what is said when it is not the one that was hoped for."""

from __future__ import annotations

import re
import socket
import ssl
from http.client import HTTPResponse

from ckptdoctor.errors import UnreadableError

REDIRECTS = (301, 302, 303, 307, 308)
# those that may be gone with the next attempt
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
DENIED = (401, 403)
GONE = (404, 410)

_RANGE = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)", re.ASCII)


def told_range(response: HTTPResponse) -> tuple[int | None, int | None]:
    """Where the part that was sent begins, and the size of the whole file; None for what is not said."""
    match = _RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    if match is None:
        return None, None
    start, _, total = match.groups()
    return None if start is None else int(start), None if total == "*" else int(total)


def told_length(response: HTTPResponse) -> int | None:
    """The length of a body, where it is said."""
    text = response.headers.get("Content-Length", "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def refused(path: str, status: int, reason: str, hint: str) -> UnreadableError:
    """What is said of an answer that is no file."""
    if status in GONE:
        return UnreadableError(f"{path} is not there (the server says {status}): look at the address again.{hint}")
    if status in DENIED:
        why = "it is private, or the address has expired"
        return UnreadableError(f"{path} may not be read (the server says {status}): {why}.{hint}")
    if status in TRANSIENT:
        return UnreadableError(f"{path} cannot be read now (the server says {status} again and again): try it later.")
    words = "".join(filter(str.isprintable, reason))[:80]
    return UnreadableError(f"{path} cannot be read: the server answers {status} {words}".rstrip() + ".")


class TooSlow(TimeoutError):
    """An answer came, but so slowly that it was not waited for."""


def is_final(error: Exception) -> bool:
    """Whether another attempt cannot help."""
    return isinstance(
        error, (TooSlow, ssl.SSLCertVerificationError, socket.gaierror, ConnectionRefusedError, ValueError)
    )


def unreached(path: str, host: str, error: Exception) -> UnreadableError:
    """What is said when there was no answer, or none that could be understood."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message or "it does not belong to the server"
        return UnreadableError(f"{path}: the certificate of {host} is not trusted ({why}), so nothing was read.")
    if isinstance(error, socket.gaierror):
        return UnreadableError(f"{path}: there is no host {host}, or no network: look at the address again.")
    if isinstance(error, ConnectionRefusedError):
        return UnreadableError(f"{path}: {host} takes no connections there: look at the address again.")
    if isinstance(error, TooSlow):
        return UnreadableError(f"{path}: {host} sends hardly anything: try it later, or download it by other means.")
    if isinstance(error, TimeoutError):
        return UnreadableError(f"{path}: {host} does not answer in time: try it later, or download it by other means.")
    why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return UnreadableError(f"{path}: the connection to {host} fails again and again ({why[:200]}): try it later.")
