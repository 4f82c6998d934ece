"""Ctrl-C, in real processes: at chosen points, and at any moment of every command that takes a while."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import ckptdoctor

INTERRUPTED = 130
ROOT = Path(__file__).parents[2]

# The command as it is installed. Until it is called Ctrl-C is the interpreter's to answer: the pipe says when it has
# begun. ``POINTS`` are audit events, each with a word of its arguments: there Ctrl-C is pressed
START = """
import os, signal, sys
points = [point.split("|") for point in os.environ["POINTS"].split(";") if point]
begun = int(sys.argv.pop(1))

def press(name, arguments):
    if name == "import" and arguments[0] == "ckptdoctor.checkpoint":
        os.write(begun, b".")
    if points and name == points[0][0] and points[0][1] in str(arguments):
        del points[0]
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(press)
from ckptdoctor.__main__ import main
main()
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended: ``left`` are the names in its folder, ``seconds`` those from the signal to the end."""

    status: int
    out: str
    err: str
    left: frozenset[str]
    seconds: float


@dataclass
class Place:
    """A folder for inputs, one for outputs, and one for temporary files."""

    inputs: Path
    outputs: Path
    scratch: Path

    def run(self, *arguments: str, points: str = "", wait: Callable[[subprocess.Popen[bytes]], None] | None = None):
        """A command; ``wait`` is given the process once our code runs in it, and interrupts it."""
        ready, begun = os.pipe()
        paths = {"PYTHONPATH": str(ROOT), "TMPDIR": str(self.scratch), "POINTS": points}
        process = subprocess.Popen(
            [sys.executable, "-c", START, str(begun), *arguments],
            cwd=self.outputs,
            env={**os.environ, **paths},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[begun],
        )
        os.close(begun)
        assert os.read(ready, 1) == b"."
        os.close(ready)
        if wait is not None:
            wait(process)
        started = time.monotonic()
        out, err = process.communicate(timeout=200)
        return Ended(
            process.returncode,
            out.decode(),
            err.decode(),
            frozenset([*os.listdir(self.outputs), *os.listdir(self.scratch)]),
            time.monotonic() - started,
        )

    def clear(self) -> None:
        """Remove what was written."""
        for path in sorted(self.outputs.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()

    def digests(self) -> dict[str, str]:
        """What the inputs hold."""
        files = sorted(path for path in self.inputs.rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def made(folder: Path, elements: int) -> Place:
    """Checkpoints of six tensors: two that differ, one that is damaged, and a folder of shards."""
    place = Place(folder / "in", folder / "out", folder / "tmp")
    for each in (place.inputs, place.outputs, place.scratch, place.inputs / "shards"):
        each.mkdir()
    torch.manual_seed(0)
    state = {f"module.layer{number}.weight": torch.randn(elements // 256, 256) for number in range(6)}
    torch.save(state, place.inputs / "a.pt")
    torch.save(state | {"module.layer5.weight": state["module.layer5.weight"] + 1}, place.inputs / "b.pt")
    data = bytearray((place.inputs / "a.pt").read_bytes())
    data[len(data) // 4] ^= 1
    (place.inputs / "damaged.pt").write_bytes(data)
    names = [f"model-{number + 1:05}-of-00006.safetensors" for number in range(6)]
    for name, (key, value) in zip(names, state.items(), strict=True):
        save_file({key: value}, place.inputs / "shards" / name)
    index = {"metadata": {}, "weight_map": dict(zip(state, names, strict=True))}
    (place.inputs / "shards" / "model.safetensors.index.json").write_text(json.dumps(index))
    worn = place.inputs / "worn.pt"
    torch.save(state, worn)
    ckptdoctor.seal(worn, parity="10%")
    worn.write_bytes(worn.read_bytes()[:-5000])
    return place


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Files of a megabyte."""
    return made(tmp_path_factory.mktemp("small"), 1 << 15)


@pytest.fixture
def place(small):
    """The same, with nothing written yet."""
    small.clear()
    yield small
    small.clear()


# every command that takes a while, with its status where it is not interrupted
READING = {
    ("check", "../in/a.pt"): 1,
    ("check", "--deep", "../in/a.pt"): 1,
    ("check", "--deep", "../in/damaged.pt", "../in/b.pt"): 1,
    ("check", "--deep", "--format", "json", "../in/a.pt", "../in/b.pt"): 1,
    ("check", "--deep", "--format", "markdown", "../in/a.pt"): 1,
    ("check", "--deep", "--ignore", "N401", "../in/a.pt"): 0,
    ("show", "--stats", "../in/a.pt"): 0,
    ("show", "--stats", "--format", "json", "../in/a.pt"): 0,
    ("diff", "--values", "../in/a.pt", "../in/b.pt"): 1,
    ("diff", "--values", "--format", "json", "../in/a.pt", "../in/b.pt"): 1,
}
WRITING = {
    ("report", "../in/a.pt", "-o", "page.html"): 0,
    ("report", "../in/a.pt", "../in/b.pt", "-o", "page.html"): 0,
    ("fix", "--strip-module", "--dtype", "bf16", "../in/a.pt", "-o", "out.pt"): 0,
    ("fix", "--strip-module", "../in/a.pt", "-o", "out.pt"): 0,
    ("convert", "../in/a.pt", "out.safetensors"): 0,
    ("convert", "../in/shards", "out.pt"): 0,
    ("convert", "../in/a.pt", "folder", "--shard-size", "1MB"): 0,
    ("convert", "../in/a.pt", "folder", "--to", "dcp"): 0,
    ("merge", "../in/shards", "-o", "out.safetensors"): 0,
    ("salvage", "../in/damaged.pt", "-o", "out.pt"): 1,
    ("salvage", "../in/shards", "-o", "folder"): 0,
    ("graft", "../in/damaged.pt", "--from", "../in/a.pt", "-o", "out.pt"): 0,
    ("rebuild", "../in/worn.pt", "-o", "out.pt"): 0,
    ("seal", "../in/a.pt", "-o", "a.seal.json"): 0,
}


def require_truth(ended: Ended, arguments: tuple[str, ...], finished: int) -> None:
    """What an interrupted command says and leaves is true: it either finished, or says that it did not."""
    assert ended.status in (INTERRUPTED, finished), ended
    for trace in ("Traceback", "ignored in", "Fatal", "KeyboardInterrupt", "\x1b"):
        assert trace not in ended.err, ended
    assert not any("tmp" in name or "ckptdoctor" in name for name in ended.left), ended
    if arguments in WRITING:
        assert bool(ended.left) is (ended.status == finished), ended
        return
    assert not ended.left, ended
    if ended.status == finished or not ended.out:
        return
    if "json" in arguments:
        found = json.loads(ended.out)
        whole = found.get("complete") or found.get("compared_values") or found.get("interrupted") is False
        assert whole or not found.get("complete", found.get("interrupted") is not True), ended
    elif "Interrupted" not in ended.out:  # what was printed is of work that had been done
        done = ("Read ", "Compared headers and values", "Nothing found")
        assert any(each in ended.out for each in done) and "no rule needs" not in ended.out, ended
    else:
        assert "No findings." not in ended.out.split("Interrupted")[-1], ended


# ---- at chosen points

PARTS = [
    (("check", "../in/a.pt"), "open|a.pt"),
    (("check", "../in/a.pt"), "import|ckptdoctor.rendering.full"),
    (("check", "--deep", "../in/a.pt"), "import|('ckptdoctor.values.distinct',"),
    (("check", "--deep", "--format", "json", "../in/a.pt", "../in/b.pt"), "import|('ckptdoctor.values.distinct',"),
    (("show", "--stats", "../in/a.pt"), "import|('ckptdoctor.values.distinct',"),
    pytest.param(("show", "--stats", "../in/a.pt"), "import|('numpy',", marks=pytest.mark.slow),
    (("diff", "--values", "../in/a.pt", "../in/b.pt"), "import|('ckptdoctor.values.differences',"),
    (("diff", "--values", "../in/a.pt", "../in/b.pt"), "import|('numpy',"),
    (("report", "../in/a.pt", "-o", "page.html"), "import|('ckptdoctor.values.distinct',"),
    pytest.param(("report", "../in/a.pt", "-o", "page.html"), "import|('numpy',", marks=pytest.mark.slow),
    (("report", "../in/a.pt", "-o", "page.html"), "open|ckptdoctor-tmp"),
    pytest.param(
        ("fix", "--strip-module", "--dtype", "bf16", "../in/a.pt", "-o", "out.pt"),
        "import|('numpy',",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        ("fix", "--strip-module", "--dtype", "bf16", "../in/a.pt", "-o", "out.pt"),
        "open|ckptdoctor-tmp",
        marks=pytest.mark.slow,
    ),
    (("fix", "--strip-module", "--dtype", "bf16", "../in/a.pt", "-o", "out.pt"), "fcntl.flock|"),
    (("convert", "../in/a.pt", "folder", "--shard-size", "1MB"), "os.mkdir|ckptdoctor-tmp"),
    (("salvage", "../in/damaged.pt", "-o", "out.pt"), "open|ckptdoctor-tmp"),
    (("rebuild", "../in/worn.pt", "-o", "out.pt"), "open|ckptdoctor-tmp"),
]


@pytest.mark.parametrize(("arguments", "point"), PARTS)
def test_a_press_at_a_chosen_point(place, arguments, point):
    """It ends with 130, says what is true, and leaves nothing behind.

    A thread that has imported NumPy may be done with such small files before anybody asks whether to go on.
    """
    ended = place.run(*arguments, points=point)
    finished = (READING | WRITING)[arguments] if "numpy" in point else -1
    require_truth(ended, arguments, finished)
    if ended.status == finished:
        return
    if arguments in WRITING:
        assert ended.err.endswith(("nothing was written.\n", "no page was written.\n")) and not ended.left
    elif "json" in arguments:
        found = json.loads(ended.out)
        assert found["interrupted"] and found["files"][0]["interrupted"]
        read = {each["what"]: each for each in found["files"][0]["read"]}
        assert all(each | {"done": 0, "complete": False} == each for each in (read["checksums"], read["values"]))
        assert found["not_begun"] == ["../in/b.pt"]
    elif arguments == ("check", "--deep", "../in/a.pt"):  # what was read, and that there may be more to find
        assert "Interrupted: checksums 0 of 786 kB, values 0 of 786 kB. 1 finding so far." in ended.out
    elif arguments[0] in ("show", "diff") and "ckptdoctor.values" in point:  # no value has been read
        assert (ended.out, ended.err) == ("", "Interrupted.\n")
    elif "rendering.full" not in point:  # then the examination is over, and Ctrl-C came while it was printed
        assert "Interrupted" in ended.out


@pytest.mark.parametrize("event", ["os.link", pytest.param("os.remove", marks=pytest.mark.slow)])
def test_what_is_being_published_is_finished(place, event):
    """Once the new file gets its name it is too late: the status is that of a repair that was done."""
    ended = place.run("fix", "--strip-module", "../in/a.pt", "-o", "out.pt", points=f"{event}|ckptdoctor-tmp")
    assert ended.status == 0 and ended.left == {"out.pt"} and "wrote" in ended.out


@pytest.mark.parametrize("event", ["os.remove", pytest.param("import", marks=pytest.mark.slow)])
def test_a_second_press_ends_it_at_once(place, event):
    """While the first is acted upon, or said: without a traceback, or anything left behind."""
    points = f"fcntl.flock|;{event}|"
    ended = place.run("fix", "--dtype", "bf16", "../in/a.pt", "-o", "out.pt", "--format", "json", points=points)
    assert (ended.status, ended.out, ended.err, ended.left) == (INTERRUPTED, "", "", frozenset())


def test_refusals_in_json(place):
    """An interrupted repair is one document, too."""
    command = ("fix", "--dtype", "bf16", "../in/a.pt", "-o", "out.pt", "--format", "json")
    ended = place.run(*command, points="open|ckptdoctor-tmp")
    found = json.loads(ended.out)
    assert (found["status"], found["message"]) == ("interrupted", "Interrupted: nothing was written.")


def test_a_press_that_python_cannot_raise_is_not_lost():
    """In ``__del__`` an exception is printed and forgotten; the press is repeated, which ends a wait."""
    code = (
        "import os, signal, time\n"
        "from ckptdoctor.checkpoint import process\n"
        "process.take()\n"
        "class Held:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(0)\n"
        "held = Held()\n"
        "try:\n"
        "    del held\n"
        "    time.sleep(3600)\n"
        "except KeyboardInterrupt:\n"
        "    print('heard')\n"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120)
    assert (run.stdout, run.stderr, run.returncode) == ("heard\n", "", 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_end_that_python_cannot_raise_is_not_lost(number):
    """It is sent again as well, and what must be cleaned up is, before the process ends by it."""
    code = (
        "import os, time\n"
        "from ckptdoctor.checkpoint import process\n"
        "from ckptdoctor.writing.interrupts import cleaned_up\n"
        "process.take()\n"
        "class Held:\n"
        "    def __del__(self):\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "        time.sleep(0)\n"
        "held = Held()\n"
        "with cleaned_up():\n"
        "    try:\n"
        "        del held\n"
        "        time.sleep(3600)\n"
        "    finally:\n"
        "        print('cleaned', flush=True)\n"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120)
    assert (run.stdout, run.stderr, run.returncode) == ("cleaned\n", "", -number)


def test_a_thread_that_computes_ends_with_the_process(tmp_path):
    """Where work does not hear that it shall stop, nothing is torn down under it: the process ends with its status."""
    code = (
        "import sys, threading, time\n"
        "from ckptdoctor.checkpoint import process, progress\n"
        "from ckptdoctor.cli import main\n"
        "import torch\n"
        "process.take()\n"
        "progress._NOTHING_YET = 0.1\n"
        "def deaf(work):\n"
        "    while True: torch.linalg.svdvals(torch.randn(300, 300))\n"
        "def press(event):\n"
        "    import os, signal\n"
        "    if not process.wants_end(): os.kill(os.getpid(), signal.SIGINT)\n"
        "found = progress.follow(progress.in_thread(deaf, 'work', 7), press)\n"
        "print(found.interrupted, found.complete, found.result, flush=True)\n"
        "process.leave(130)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (run.stdout, run.stderr, run.returncode) == ("True False None\n", "", INTERRUPTED)


# ---- at any moment


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_press_at_any_moment(request, tmp_path):
    """Every command, at a random moment, sometimes twice: an end within two seconds, the truth, and nothing left."""
    whole = request.config.getoption("whole", default=False)
    seed = request.config.getoption("seed", default=None)
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    print(f"seed {seed}")
    draw = random.Random(seed)
    place = made(tmp_path, 1 << 22 if whole else 1 << 20)
    before = place.digests()
    commands = list(READING | WRITING)
    draw.shuffle(commands)
    quick = place.run("check", "../in/a.pt").seconds
    patience = max(2, 4 * quick) if whole else 20  # where the machine is slow a blink takes long; a sample is not alone
    spans: dict[tuple[str, ...], float] = {}
    ends: dict[str, int] = {}
    until, number, slowest = time.monotonic() + 10, 0, 0.0
    while number < 200 if whole else time.monotonic() < until:
        arguments = commands[number % len(commands)]
        finished = (READING | WRITING)[arguments]
        if arguments not in spans:
            spans[arguments] = 3.0
            if whole:  # where the moments can lie
                ended = place.run(*arguments)
                assert ended.status == finished
                spans[arguments] = 1.1 * ended.seconds
                place.clear()
        moment, again = draw.uniform(0, spans[arguments]), draw.random() < 0.1

        def press(process, moment=moment, again=again):
            time.sleep(moment)
            process.send_signal(signal.SIGINT)
            if again:
                time.sleep(draw.uniform(0, 0.05))
                process.send_signal(signal.SIGINT)

        ended = place.run(*arguments, wait=press)
        told = f"seed {seed}, number {number}: {arguments} after {moment:.3f} s: {ended}"
        assert ended.seconds < patience, told
        if again and ended.status == INTERRUPTED:
            assert not ended.left and "Traceback" not in ended.err, told
        else:
            require_truth(ended, arguments, finished)
        slowest = max(slowest, ended.seconds)
        ends[str(ended.status)] = ends.get(str(ended.status), 0) + 1
        place.clear()
        number += 1
    assert place.digests() == before, f"seed {seed}"
    print(f"{number} interrupts, ends by status {ends}, the slowest after {slowest:.2f} s; a check took {quick:.2f} s")
    assert number
