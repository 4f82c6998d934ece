"""Files in the other byte order: what is refused names the command that helps, and then it goes."""

from __future__ import annotations

import json
import shlex
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.commands import run_here

WEIGHTS = {"a.weight": torch.arange(12.0).reshape(3, 4) / 7, "b.weight": torch.tensor([0.1, -2.5])}


def turned(contents, path):
    """What ``torch.save`` writes on a big-endian machine."""
    torch.save(contents, path.with_suffix(".tmp"))
    with ZipFile(path.with_suffix(".tmp")) as old, ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if "/data/" in name:
                data = np.frombuffer(data, "<u4").astype(">u4").tobytes()
            new.writestr(name, b"big" if name.endswith("byteorder") else data)
    path.with_suffix(".tmp").unlink()
    assert all(torch.equal(value, contents[key]) for key, value in torch.load(path).items())
    return path


def helped(folder, *command, instead):
    """Refused, with a command; after that one, with what it wrote ``instead`` of the file, it goes."""
    done = run_here(*command, cwd=folder)
    said = " ".join((done.stdout + done.stderr).decode().split())
    assert done.returncode == 1 and "big-endian" in said
    program, *advice = shlex.split(said.partition("Convert it first: ")[2])
    assert program == "ckptdoctor" and run_here(*advice, cwd=folder).returncode == 0
    again = run_here(*[advice[-1] if each == instead else each for each in command], cwd=folder)
    assert again.returncode == 0, again.stdout + again.stderr


@pytest.mark.parametrize("output", ["out.pt", "out.safetensors"])
def test_a_cast(tmp_path, output):
    """In either container."""
    turned(WEIGHTS, tmp_path / "big one.pt")
    helped(tmp_path, "fix", "big one.pt", "--dtype", "bfloat16", "-o", output, instead="big one.pt")
    found = (load_file if output.endswith("s") else torch.load)(tmp_path / output)
    assert all(torch.equal(value, WEIGHTS[key].bfloat16()) for key, value in found.items()) and len(found) == 2


def test_a_cast_of_arrays(tmp_path):
    """NumPy writes any byte order on any machine."""
    np.savez(tmp_path / "big.npz", w=np.arange(6, dtype=">f4"))
    helped(tmp_path, "fix", "big.npz", "--dtype", "bfloat16", "-o", "out.safetensors", instead="big.npz")
    assert torch.equal(load_file(tmp_path / "out.safetensors")["w"], torch.arange(6.0).bfloat16())


def test_a_merge_with_others(tmp_path):
    """Of two files only one is in that order."""
    turned({"a.weight": WEIGHTS["a.weight"]}, tmp_path / "big.pt")
    torch.save({"b.weight": WEIGHTS["b.weight"]}, tmp_path / "other.pt")
    helped(tmp_path, "merge", "other.pt", "big.pt", "-o", "out.pt", instead="big.pt")
    found = torch.load(tmp_path / "out.pt")
    assert all(torch.equal(value, WEIGHTS[key]) for key, value in found.items()) and len(found) == 2


def test_an_adapter(tmp_path):
    """Its folder stays what is named: the file next to it is the one that is read then."""
    save_file({"q.weight": torch.zeros(2, 2)}, tmp_path / "base.safetensors")
    (tmp_path / "adapter").mkdir()
    factors = {f"base_model.model.q.lora_{name}.weight": torch.eye(2) for name in "AB"}
    turned(factors, tmp_path / "adapter" / "adapter_model.bin")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["q"]}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    command = ("fix", "base.safetensors", "--merge-adapter", "adapter", "-o", "out.safetensors")
    helped(tmp_path, *command, instead=None)
    assert torch.equal(load_file(tmp_path / "out.safetensors")["q.weight"], torch.eye(2))
