"""Nothing that was unpacked stays behind, however a process ends."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from tests.commands import run


@pytest.fixture
def packed(tmp_path):
    torch.save({"module.w": torch.ones(3)}, tmp_path / "m.pt")
    path = tmp_path / "m.pt.gz"
    path.write_bytes(gzip.compress((tmp_path / "m.pt").read_bytes()))
    (tmp_path / "m.pt").unlink()
    return path


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.parametrize("command", [["check"], ["show"], ["fix"], ["check", "--deep"]], ids=" ".join)
def test_commands_leave_nothing_behind(command, packed, temporary):
    """They end in different ways."""
    done = run(command[0], packed, *command[1:], cwd=packed.parent)
    assert done.returncode in (0, 1) and list(temporary.iterdir()) == []


def _unpacking(packed, then):
    code = (
        f"import ckptdoctor, os, signal, time; ckptdoctor.open({str(packed)!r}); print('unpacked', flush=True); {then}"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def test_an_interrupt_leaves_nothing_behind(packed, temporary):
    """Ctrl-C unwinds the process."""
    with _unpacking(packed, "time.sleep(60)") as process:
        process.stdout.readline()
        assert len(list(temporary.iterdir())) == 1
        process.send_signal(signal.SIGINT)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_told_to_end_leaves_nothing_behind(packed, temporary, number):
    """It ends by the signal, as whoever sent it expects."""
    code = (
        "import ckptdoctor, time\n"
        "from ckptdoctor.checkpoint import process\n"
        "process.take()\n"
        f"ckptdoctor.open({str(packed)!r}); print('unpacked', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert len(list(temporary.iterdir())) == 1
        process.send_signal(number)
    assert process.returncode == -number
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_came_from_standard_input_is_removed(temporary, number):
    """The command waits for the rest of it, in a real process, and is told to end."""
    arguments = [sys.executable, "-m", "ckptdoctor", "check", "-"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        while not list(temporary.glob("ckptdoctor-*")):  # before it, tempfile tries whether it may write there
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(60) == -number
    assert list(temporary.iterdir()) == []


def test_a_program_that_uses_the_library_keeps_its_signals(packed, temporary):
    """Unpacking a file takes no signal from it."""
    with _unpacking(packed, "print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)") as process:
        assert process.stdout.read().split() == [b"unpacked", b"True"]


def test_what_a_killed_process_left_is_removed_by_the_next(packed, temporary):
    """Its lock is free; that of a process that lives is not, and its folder stays."""
    with _unpacking(packed, "os.kill(os.getpid(), signal.SIGKILL)") as killed:
        killed.wait()
    with _unpacking(packed, "time.sleep(60)") as living:
        living.stdout.readline()
        kept = list(temporary.iterdir())
        assert len(kept) == 1
        subprocess.run([sys.executable, "-m", "ckptdoctor", "check", str(packed)], check=False, capture_output=True)
        assert list(temporary.iterdir()) == kept
        living.kill()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_leaves_the_folder_of_its_parent_alone(packed, temporary):
    """The parent still needs it."""
    code = (
        "import ckptdoctor, os, sys, subprocess\n"
        f"ckptdoctor.open({str(packed)!r})\n"
        "child = os.fork()\n"
        "if not child:\n"
        f"    ckptdoctor.open({str(packed)!r})\n"
        "    sys.exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(len(os.listdir(os.environ['TMPDIR'])))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "1" and list(temporary.iterdir()) == []


def test_an_interrupt_while_unpacking_leaves_nothing_behind(temporary, tmp_path):
    """A file that takes a while."""
    path = tmp_path / "large.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"\x80\x02")
        for _ in range(300):
            file.write(bytes(1 << 20))
    code = f"import ckptdoctor; print('go', flush=True); ckptdoctor.check({str(path)!r})"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        process.stdout.readline()
        for _ in range(1000):
            if any(temporary.glob("ckptdoctor-*")) or process.poll() is not None:
                break
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
    assert list(temporary.iterdir()) == []
