"""Repairs of many tensors, of which forks prove a part: what is refused without them is refused with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.commands import PATIENCE

COUNT = 100  # tensors: here that is enough for a fork

# the command with something in it gone wrong, on all cores or on one, where none is forked; it says how many were
COMMAND = """
import os, sys
from ckptdoctor.__main__ import main
forked = 0
def fork(real=os.fork):
    global forked
    forked += 1
    return real()
os.fork = fork
if sys.argv.pop(1) == "alone":
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
exec(sys.argv.pop(1))
from ckptdoctor.checkpoint import alongside, process
alongside.WORTH = 100
process.before_leaving(lambda: print(f"{forked} forks"))
main()
"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="nothing is forked here"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A checkpoint of so many tensors, two values each."""
    path = tmp_path_factory.mktemp("many") / "model.pt"
    values = torch.arange(2.0)
    torch.save({f"module.layers.{index}.weight": values.clone() for index in range(COUNT)}, path)
    return path


def repaired(model: Path, output: Path, wrong: str = "", where: str = "beside") -> tuple[int, str, int]:
    """Status, words and forks of a repair in which something may go ``wrong``."""
    command = [sys.executable, "-c", COMMAND, where, wrong, "fix", model, "--strip-module", "-o", output]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert not done.stderr, done.stderr
    words, _, forks = done.stdout.rstrip().rpartition("\n")
    return done.returncode, words, int(forks.split()[0])


def test_with_forks_the_output_is_what_it_is_without(model: Path, tmp_path: Path):
    """Byte for byte, and so is what is said of it, except for how long it took."""
    one, other = tmp_path / "output.pt", tmp_path / "sub" / "output.pt"
    other.parent.mkdir()
    beside, alone = repaired(model, one), repaired(model, other, where="alone")
    assert (beside[0], alone[0], beside[2], alone[2]) == (0, 0, 5, 0)
    assert one.read_bytes() == other.read_bytes()
    assert list(torch.load(one))[-1] == f"layers.{COUNT - 1}.weight"
    told = [
        [line for line in each[1].splitlines() if not line.startswith(("wrote", "next"))] for each in (beside, alone)
    ]
    assert told[0] == told[1]
    assert f"{COUNT:,} of {COUNT:,} storages byte-identical" in beside[1]


# what goes wrong, and what is said of it: an account that does not add up, a pickle that is not written as it was read,
# contents that are not those of the plan, bytes of another tensor under the name of one, and a disk that forgets
WRONG = {
    """
from ckptdoctor.edits.applied import renaming
entries = renaming._entries
renaming._entries = lambda *given: entries(*given)[:-1]
""": "This repair would change more than its edits name",
    """
from ckptdoctor.pickles import encode
tensors = encode._tensors
def wrong(w, values, at):
    end = tensors(w, values, at)
    w.out[-1:] = [w.out[-1].replace(b"layers", b"layer_")]
    return end
encode._tensors = wrong
""": "the pickle cannot be written again byte for byte",
    """
from ckptdoctor.formats.torch.zip import writer
encode = writer.encode
writer.encode = lambda pickle: encode(pickle).replace(b"layers.77.", b"layers_77.")
""": 'there is the key "layers_77.weight" instead of "layers.77.weight"',
    """
from ckptdoctor.formats.torch.zip import writer
encode = writer.encode
def swapped(data, one=b"X\\2\\0\\0\\x0012", other=b"X\\2\\0\\0\\x0021"):
    assert data.count(one) == data.count(other) == 1
    return data.replace(one, b"one of two").replace(other, one).replace(b"one of two", other)
writer.encode = lambda pickle: swapped(encode(pickle))
""": "differ in the output",
    """
from ckptdoctor.writing import publishing
compare = publishing.compare
def changed(recipe, files, target, work=None):
    compare(recipe, files, target, work)
    os.pwrite(target, b"layers_88", os.pread(target, 1 << 20, 0).index(b"layers.88."))
publishing.compare = changed
""": 'there is the key "layers_88.weight" instead of "layers.88.weight"',
}


@pytest.mark.parametrize(("wrong", "said"), WRONG.items(), ids=["account", "pickle", "contents", "bytes", "disk"])
def test_what_a_fork_finds_is_refused(model: Path, tmp_path: Path, wrong: str, said: str):
    """In the words in which it would be without one, and nothing is left in the folder."""
    status, words, forks = repaired(model, tmp_path / "output.pt", wrong)
    assert said in words.replace("\n", " ")
    assert (status, bool(forks)) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_a_repair_goes_on_where_every_fork_is_killed(model: Path, tmp_path: Path):
    """As by a system without memory: then all is proven in the one process that is left."""
    killed = "from ckptdoctor.checkpoint import alongside; alongside.dumps = lambda answer: os.kill(os.getpid(), 9)"
    status, words, forks = repaired(model, tmp_path / "output.pt", killed)
    assert (status, forks) == (0, 5)
    assert f"{COUNT:,} of {COUNT:,} storages byte-identical" in words
    assert next(iter(torch.load(tmp_path / "output.pt"))) == "layers.0.weight"


@pytest.mark.parametrize("stage", [1, 5])
def test_ctrl_c_while_a_fork_works_leaves_nothing(model: Path, tmp_path: Path, stage: int):
    """Neither a file nor a process: whoever waits for the end of the output of all of them does not wait long."""
    pressed = f"""
import signal
def fork(real=os.fork, seen=[]):
    child = real()
    if child:
        seen.append(child)
        if len(seen) == {stage}:
            os.kill(os.getpid(), signal.SIGINT)
    return child
os.fork = fork
"""
    command = [
        sys.executable,
        "-c",
        COMMAND,
        "beside",
        pressed,
        "fix",
        model,
        "--strip-module",
        "-o",
        tmp_path / "o.pt",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 130
    assert "nothing was written" in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_no_fork_has_a_file_open_that_is_changed_in_place(tmp_path: Path):
    """The shards of a folder are refused while another process has them open: forks of our own must not be that one."""
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    shards = [{f"module.layers.{number}.{index}": torch.zeros(2) for index in range(COUNT)} for number in (1, 2)]
    for name, shard in zip(names, shards, strict=True):
        save_file(shard, tmp_path / name, metadata={"format": "pt"})
    weights = {key: name for name, shard in zip(names, shards, strict=True) for key in shard}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    slow = """
import time
from ckptdoctor.checkpoint import alongside
dumps = alongside.dumps
alongside.dumps = lambda answer: time.sleep(9) or dumps(answer)
"""
    command = [
        sys.executable,
        "-c",
        COMMAND,
        "beside",
        slow,
        "fix",
        tmp_path,
        "--strip-module",
        "--in-place",
        "--force",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout
    assert load_file(tmp_path / names[0]).keys() == {f"layers.1.{index}" for index in range(COUNT)}
