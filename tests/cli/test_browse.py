"""The browser's process on a real terminal: how it ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch

pty = pytest.importorskip("pty")

_SHOWN = b"\x1b[?1049h"  # the alternate screen of the terminal, and back
_GONE = b"\x1b[?1049l"

# The browser, with a file half written by a thread: what of it there is, is as a repair has it
BROWSE = """
import os, sys, threading
from ckptdoctor.cli import browse
from ckptdoctor.writing import Copy, Generated, Recipe, publish

def slowly():
    yield b"x"
    threading.Event().wait()

recipe = Recipe(sys.argv[1], (Copy(0, os.path.getsize(sys.argv[1])), Generated(2, slowly)))
threading.Thread(target=publish, args=(recipe, sys.argv[1] + ".out"), daemon=True).start()
browse.run(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow), (signal.SIGHUP, 129)],
)
def test_a_signal_leaves_neither_half_a_file_nor_the_terminal_in_disorder(tmp_path: Path, number: int, status: int):
    """The browser goes as if it had been closed, and its status tells why; a terminal that is gone gets no farewell."""
    path = tmp_path / "m.pt"
    torch.save({"fc.weight": torch.ones(2, 2)}, path)
    before = path.read_bytes()
    child, terminal = pty.fork()
    if not child:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-c", BROWSE, str(path)])
    said = b""
    while b"fc.weight" not in said:
        said += os.read(terminal, 1 << 16)
    assert len(os.listdir(tmp_path)) == 2
    os.kill(child, number)
    with suppress(OSError):  # how Linux says that nobody has the terminal any more
        while more := os.read(terminal, 1 << 16):
            said += more
    os.close(terminal)
    _, ended = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(ended) == status
    assert os.listdir(tmp_path) == ["m.pt"]
    assert path.read_bytes() == before
    assert said.index(_SHOWN) < said.rfind(_GONE) or number == signal.SIGHUP


@pytest.mark.parametrize(
    ("key", "status"),
    [
        (b"q", 0),
        pytest.param(b"\x11", 0, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        (signal.SIGINT, 130),
    ],
)
def test_it_ends_while_every_byte_is_read(tmp_path: Path, key: bytes | int, status: int):
    """By a key or a signal, with threads in machine code: at once, with its status, the terminal as it was."""
    path = tmp_path / "m.safetensors"
    header = json.dumps({"fc.weight": {"dtype": "F32", "shape": [1 << 33], "data_offsets": [0, 1 << 35]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + (1 << 35))  # nothing but a hole: 32 GiB that take no room
    child, terminal = pty.fork()
    if not child:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "ckptdoctor", "browse", str(path)])
    said = b""
    for word, press in ((b"fc.weight", b"e"), (b"checksums", b"")):
        while word not in said:
            said += os.read(terminal, 1 << 16)
        os.write(terminal, press)
    if isinstance(key, bytes):
        os.write(terminal, key)
    else:
        os.kill(child, key)
    with suppress(OSError):
        while more := os.read(terminal, 1 << 16):
            said += more
    os.close(terminal)
    _, ended = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(ended) == status
    assert b"Traceback" not in said and said.rfind(_GONE) > said.index(_SHOWN)
