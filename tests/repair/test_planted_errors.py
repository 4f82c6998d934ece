"""Errors planted in a repair, one in each stage: the proof of another stage refuses what comes of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

COUNT = 100  # tensors

# the command with something in it gone wrong
COMMAND = """
import os, sys
from ckptdoctor.__main__ import main
exec(sys.argv.pop(1))
main()
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A checkpoint of so many tensors, two values each."""
    path = tmp_path_factory.mktemp("many") / "model.pt"
    values = torch.arange(2.0)
    torch.save({f"module.layers.{index}.weight": values.clone() for index in range(COUNT)}, path)
    return path


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
def test_an_error_of_one_stage_is_refused(model: Path, tmp_path: Path, wrong: str, said: str):
    """With what is wrong, and nothing is left in the folder."""
    command = [sys.executable, "-c", COMMAND, wrong, "fix", model, "--strip-module", "-o", tmp_path / "output.pt"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr, done.stderr
    assert said in done.stdout.replace("\n", " ")
    assert done.returncode == 1
    assert list(tmp_path.iterdir()) == []
