"""The writer is killed between every two steps, by real signals in real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.writing.helpers import leftovers, make_case

# Forks once for every line of the package that a publication runs, and kills the child right before that line
DRIVER = """
import json, os, signal, sys
from pathlib import Path
from ckptdoctor.writing import publish
from tests.writing.helpers import make_case
root, target, stride = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
package = os.sep + os.path.join("ckptdoctor", "writing") + os.sep

def run(case, output, force):
    publish(case.recipe, str(output), force=force)

def killed_at(step):
    seen = 0
    def trace(frame, event, argument):
        nonlocal seen
        if package not in frame.f_code.co_filename:
            return None
        if event == "line":
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)

step, ends = 1 - stride, []
while True:
    step += stride
    folder = root / str(step)
    folder.mkdir()
    case = make_case(folder)
    before = case.source.read_bytes()
    output = case.source if target == "original" else folder / "out.pt"
    if target == "existing":
        output.write_bytes(b"old")
    pid = os.fork()
    if pid == 0:
        killed_at(step)
        run(case, output, target != "new")
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    done = os.WIFEXITED(status)
    assert done or os.WTERMSIG(status) == signal.SIGKILL
    now = output.read_bytes() if output.exists() else None
    old = {"new": None, "existing": b"old", "original": before}[target]
    ends.append("new" if now == case.wanted else "old" if now == old else "BROKEN")
    if target != "original" and case.source.read_bytes() != before:
        ends.append("SOURCE LOST")
    for each in folder.iterdir():
        each.unlink()
    if done:
        break
print(json.dumps(ends))
"""


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", ["new", "existing", "original"])
def test_a_kill_between_any_two_steps_leaves_the_old_or_the_new_file(tmp_path: Path, target: str, stride: int):
    """Never a part of one: the old contents up to some step, the complete new ones from there on."""
    arguments = [sys.executable, "-c", DRIVER, str(tmp_path), target, str(stride)]
    run = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert run.returncode == 0, run.stderr
    ends = json.loads(run.stdout)
    assert len(ends) > 150 // stride
    switch = ends.index("new")
    assert set(ends[:switch]) == {"old"}
    assert set(ends[switch:]) == {"new"}


SLOW = """
import sys, time
from pathlib import Path
from ckptdoctor.writing import Copy, Generated, Literal, Recipe, publish

def slowly():
    yield b"x"
    print("writing", flush=True)
    time.sleep(60)

size = int(sys.argv[3])
recipe = Recipe(sys.argv[1], (Copy(0, size), Generated(2, slowly)))
publish(recipe, sys.argv[2])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("scale", [1, 150])
def test_a_signal_that_ends_the_process_leaves_no_temporary_file(tmp_path: Path, number: signal.Signals, scale: int):
    """SIGTERM, Ctrl-C and SIGHUP while bytes are written: the process ends by that signal, after cleaning up."""
    case = make_case(tmp_path, scale)
    arguments = [sys.executable, "-c", SLOW, str(case.source), str(tmp_path / "out"), str(200_000 * scale)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        assert len(leftovers(tmp_path)) == 1
        time.sleep(0.02)
        process.send_signal(number)
        process.wait(timeout=20)
    assert process.returncode == -number
    assert os.listdir(tmp_path) == ["source.pt"]


def test_signals_are_handled_as_before_afterwards(tmp_path: Path):
    """Handlers of the caller stay in place, and the default ones come back."""
    from ckptdoctor.writing import publish

    def own(number, frame):
        raise AssertionError

    before = signal.signal(signal.SIGHUP, own)
    try:
        publish(make_case(tmp_path).recipe, str(tmp_path / "out"))
        assert signal.getsignal(signal.SIGHUP) is own
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
