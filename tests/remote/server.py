"""A real HTTP server in a thread: with ranges or without, with failures on demand, counting requests and bytes."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


@dataclass
class Behaviour:
    """What the server has, how it behaves, and what it was asked for."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    lengths: bool = True
    etag: str | None = '"one"'
    statuses: list[int] = field(default_factory=list)  # given instead of the next answers
    breaks: list[int] = field(default_factory=list)  # bytes after which the next bodies break off
    redirects: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)  # sent with each body
    requests: list[tuple[str, str | None, dict[str, str]]] = field(default_factory=list)
    sent: int = 0
    connections: int = 0
    address: str = ""

    def url(self, name):
        return f"{self.address}/{name}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.behaviour.connections += 1

    def do_GET(self):
        how = self.server.behaviour
        path = unquote(urlsplit(self.path).path).lstrip("/")
        how.requests.append((self.path, self.headers.get("Range"), dict(self.headers)))
        if how.statuses and (status := how.statuses.pop(0)) != 200:
            self._refuse(status)
        elif path in how.redirects:
            self.send_response(302)
            self.send_header("Location", how.redirects[path])
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path not in how.files:
            self._refuse(404)
        else:
            self._serve(how, how.files[path])

    def _serve(self, how, data):
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        body, status, extra = data, 200, {}
        if wanted and how.ranges:
            start, stop = int(wanted[1]), min(int(wanted[2]) + 1, len(data))
            if start >= len(data):
                self._refuse(416, {"Content-Range": f"bytes */{len(data)}"})
                return
            body, status = data[start:stop], 206
            extra["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        self.send_response(status)
        if how.lengths:
            self.send_header("Content-Length", str(len(body)))
        if how.etag:
            self.send_header("ETag", how.etag)
        for name, value in {**extra, **how.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if how.breaks and (at := how.breaks.pop(0)) < len(body):
            body = body[:at]
            self.close_connection = True
        if not how.lengths:
            self.close_connection = True
        for at in range(0, len(body), 1 << 16):
            piece = body[at : at + (1 << 16)]
            how.sent += len(piece)  # before it is: the client may have all of it, and look, in the next moment
            try:
                self.wfile.write(piece)
            except OSError:  # the client has seen enough
                how.sent -= len(piece)
                self.close_connection = True
                return

    def _refuse(self, status, headers=None):
        self.send_response(status)
        for name, value in {"Content-Length": "0", **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_):
        """Nothing on stderr."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A client that goes away is none of ours."""


@contextmanager
def serving(context=None, **options):
    """A server on a free port of this machine, while this lasts; over TLS with an SSLContext."""
    server = _Server(("127.0.0.1", 0), _Handler)
    scheme = "http"
    if context is not None:
        scheme = "https"
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.behaviour = Behaviour(**options)
    server.behaviour.address = f"{scheme}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.behaviour
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
