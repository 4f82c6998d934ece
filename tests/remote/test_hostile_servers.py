"""Servers that mean harm cost seconds and little memory, and end in one sentence."""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from ckptdoctor.errors import UnreadableError
from ckptdoctor.remote import http, open_remote
from ckptdoctor.remote import http as connection


@contextmanager
def answering(answer):
    """A server that answers each request with what ``answer`` yields for its range; gives its address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(client):
        with client, suppress(OSError):
            found = re.search(rb"bytes=(\d+)-(\d+)", client.recv(1 << 16))
            for piece in answer(int(found[1]), int(found[2])):
                client.sendall(piece)

    def listen():
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    accepting = threading.Thread(target=listen, daemon=True)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/m.pt"
    finally:
        listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        accepting.join()
        listener.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """No waiting."""
    monkeypatch.setattr(http, "DELAYS", (0.0,))
    monkeypatch.setattr(connection, "_PATIENCE", 0.3)
    monkeypatch.setattr(connection, "_SLOWEST", 1 << 20)
    monkeypatch.setenv("NO_PROXY", "*")


def _continue(start, stop):
    while True:
        yield b"HTTP/1.1 100 Continue\r\n\r\n"


def _slow_header(start, stop):
    yield b"HTTP/1.1 206 Part"
    while True:
        time.sleep(0.01)
        yield b"a"


def _slow_body(start, stop):
    yield b"HTTP/1.1 206 Part\r\nContent-Range: bytes %d-%d/%d\r\n\r\n" % (start, stop, 1 << 30)
    while True:
        time.sleep(0.01)
        yield b"\x80"


@pytest.mark.parametrize("answer", [_continue, _slow_header, _slow_body])
def test_an_answer_without_an_end(answer):
    """A server that sends something again and again, but never its answer, is given up."""
    with answering(answer) as address, pytest.raises(UnreadableError, match="is too slow"):
        open_remote(address)


def test_a_redirection_with_an_endless_body():
    """The body of a redirection is not read, whatever its length is said to be."""

    def answer(start, stop):
        yield b"HTTP/1.1 302 Found\r\nLocation: /y\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n"
        while True:
            yield b"10000\r\n" + bytes(1 << 16) + b"\r\n"

    with answering(answer) as address, pytest.raises(UnreadableError, match="redirects endlessly"):
        open_remote(address)


def test_one_byte_for_each_request():
    """A part that comes in hundreds of pieces is given up."""

    def answer(start, stop):
        size = stop - start + 1
        yield b"HTTP/1.1 206 P\r\nContent-Range: bytes %d-%d/%d\r\nContent-Length: %d\r\n" % (
            start,
            stop,
            1 << 30,
            size,
        )
        yield b"\r\n\x80"

    with answering(answer) as address:
        source = open_remote(address)
        with pytest.raises(UnreadableError, match="keeps breaking off"):
            source.read(1 << 20, 5000)
        source.close()


def test_a_size_of_thousands_of_digits():
    """No file has it, so that it is no size."""

    def answer(start, stop):
        yield b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-0/%s\r\nContent-Length: 1\r\n\r\na" % (b"9" * 4000)

    with answering(answer) as address, pytest.raises(UnreadableError, match="or no size"):
        open_remote(address)
