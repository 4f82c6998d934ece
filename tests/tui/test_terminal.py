"""The command as a process of its own, on a terminal and without one."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time

import pytest

from tests.commands import run

SIZE = struct.pack("HHHH", 24, 80, 0, 0)


def on_a_terminal(*arguments, until=b"state_dict", keys=b"q", variables=None):
    """Run ckptdoctor on a terminal of 80 × 24, press keys when ``until`` is to be seen; its output and exit status."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update({"TERM": "xterm-256color"} | (variables or {}))
        os.execv(sys.executable, [sys.executable, "-m", "ckptdoctor", *arguments])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, SIZE)
    output, pressed, deadline = b"", False, time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            output += os.read(terminal, 65536)
        except OSError:  # the process has ended, and its side of the terminal is closed
            break
        if not pressed and until in output:
            os.write(terminal, keys)
            pressed = True
    os.close(terminal)
    return output, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("arguments", [("browse", "resnet.pt"), ("resnet.pt",)], ids=" ".join)
def test_on_a_terminal(arguments):
    """A path, with or without the command, opens the browser; q leaves, and the terminal is as it was."""
    output, status = on_a_terminal(*arguments)
    assert status == 0
    assert b"state_dict" in output
    assert output.rindex(b"\x1b[?1049l") > output.rindex(b"\x1b[?1049h")


MISSING = [
    ("nowhere.pt",),
    ("browse", "nowhere.pt"),
    ("browse", "resnet.pt", "nowhere.pt"),
    ("browse", "resnet.pt", "--like", "nowhere.pt"),
]


@pytest.mark.parametrize("arguments", MISSING, ids=" ".join)
def test_a_missing_file_on_a_terminal(arguments):
    """One line, status 2, and nothing is drawn before it."""
    output, status = on_a_terminal(*arguments, until=b"never seen")
    assert status == 2
    assert output == b"error: nowhere.pt cannot be opened: No such file or directory.\r\n"


@pytest.mark.parametrize("name", ["/dev/null", "fifo"])
def test_what_is_no_file_on_a_terminal(name, tmp_path, monkeypatch):
    """Nobody waits for what may never write, and the sentence comes at once."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    output, status = on_a_terminal("browse", name, until=b"never seen")
    assert (status, output) == (2, f"error: {name} is not a regular file.\r\n".encode())


def test_a_name_like_an_option(library, tmp_path, monkeypatch):
    """Where a file is called so, the way to name it is said."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-lead.pt").write_bytes((library / "resnet.pt").read_bytes())
    for arguments in (("-lead.pt",), ("browse", "-lead.pt")):
        output, status = on_a_terminal(*arguments, until=b"never seen")
        assert (status, output.split(b"\r\n")[-2]) == (2, b"A file has this name: write ./-lead.pt")
    assert on_a_terminal("./-lead.pt")[1] == 0


def test_without_a_terminal(library):
    """browse says what to use instead."""
    result = run("browse", "resnet.pt", cwd=library)
    assert result.returncode == 2
    assert b"ckptdoctor check resnet.pt" in result.stderr


@pytest.mark.parametrize("more", [(), ("--serve",)], ids=["terminal", "served"])
def test_a_theme_that_there_is_not(more, monkeypatch, capfd):
    """It is refused before a terminal is touched or a page is served, with the names that there are."""
    from ckptdoctor.cli.main import run as command

    if not more:
        monkeypatch.setenv("TEXTUAL_DRIVER", "textual.drivers.web_driver:WebDriver")
    assert command(["browse", "resnet.pt", "--theme", "drakula", *more]) == 2
    said = capfd.readouterr().err
    assert said.startswith('error: --theme: "drakula" is not one of dark, light, ')
    assert said.endswith(' Did you mean "dracula"?\n') and "nord" in said


@pytest.mark.parametrize("name", ["dark", "light", "nord", "ckptdoctor-dark", None])
def test_themes_that_there_are(name):
    """Each opens a browser in its colours."""
    from ckptdoctor.tui.themes import named, theme_named
    from tests.tui import browse

    assert browse("resnet.pt", look=lambda app: app.theme, theme=named(name)) == theme_named(name).name
