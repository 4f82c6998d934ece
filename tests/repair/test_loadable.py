"""What a repair says of its output: held against real torch, file by file."""

from __future__ import annotations

import argparse
import fractions
import os
import random
import shlex
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ckptdoctor
from ckptdoctor import formats
from ckptdoctor.errors import CkptDoctorError
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Loader
from ckptdoctor.repair.loadable import next_step, weights_only_refusal
from ckptdoctor.rules.examples import T
from tests import builders
from tests.builders import build
from tests.commands import run, run_here
from tests.pickles.payloads import TORCH
from tests.rules import examined
from tests.rules.sick import SICK

SAMPLES = Path(__file__).parents[2] / "sample_ckpts"
LOADS = (Loader.TORCH, Loader.TORCH_ON_CPU)


def torch_refuses(path: Path) -> str:
    """Why real torch refuses a file; "" where it loads it. What other tests have imported allows nothing more."""
    allowed = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever the file makes it raise
        return f"{type(error).__name__}: {error}"
    finally:
        torch.serialization.add_safe_globals(allowed)
    return ""


def told(path: Path) -> str | None:
    """Why a file is said not to load, "" where it is said to; None where its pickles are not torch's to read."""
    if path.suffix == ".safetensors":
        return None  # torch leaves it to safetensors
    try:
        with formats.opened(path) as (source, container):
            if container.format not in ("torch zip", "torch legacy") or source.file != str(path):
                return None  # another container, or packed into one
            checkpoint = formats.read(source, container)
            refusal = weights_only_refusal(source, container)
    except CkptDoctorError:
        return None
    step = next_step(str(path), checkpoint, check(str(path)).findings, refusal)
    return "" if step.loader in LOADS else f"{step.loader.value} {' '.join(step.options)}: {step.refusal}"


def disagreement(path: Path) -> str:
    """What is said of a file and what torch does, where these differ."""
    ours = told(path)
    if ours is None:
        return ""
    theirs = torch_refuses(path)
    # damage, tensors that torch moves to other devices, and calls in texts, into which torch does not look
    careful = ours.startswith(("none", "fix --to-cpu", "ckptdoctor : "))
    if bool(ours) == bool(theirs) or (careful and not theirs):
        return ""
    return f"{path.name}: {ours or 'it loads'}, and torch: {theirs or 'loads it'}"


def test_the_samples_are_told_as_torch_reads_them():
    """Every committed sample loads exactly where it is said to."""
    files = [path for path in SAMPLES.rglob("*") if path.is_file()]
    assert sum(told(path) is not None for path in files) > 80
    assert [each for each in map(disagreement, files) if each] == []


def test_an_archive_of_a_version_that_torch_does_not_read_is_told_as_that(tmp_path: Path):
    """No finding blocks it: a note of the archive alone says so."""
    _, example = SICK["C106", "saved by a future torch"]
    path = build(example, tmp_path)
    assert "torch rejects" in (told(path) or "") and disagreement(path) == ""


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("protocol", [2, 4])
def test_every_kind_of_contents_is_told_as_torch_reads_it(tmp_path: Path, name: str, protocol: int):
    """In the archive of today and in the format before it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        contents = TORCH[name]()
    for number, zipped in enumerate((True, False)):
        path = tmp_path / f"{number}.pt"
        try:
            torch.save(contents, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
        except Exception:  # what this format cannot hold
            continue
        assert disagreement(path) == ""


@pytest.mark.slow
def test_the_examples_of_all_rules_are_told_as_torch_reads_them(tmp_path: Path):
    """Whatever is wrong with them."""
    found = []
    for number, (_, example) in enumerate(SICK.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = build(example, folder)
        found += [disagreement(path)] if path.is_file() else []
    wrong = [each for each in found if each]
    assert not wrong, "\n".join(wrong)


# ---- what is left after a repair, and the line that loads it

_WEIGHTS = {"fc.weight": torch.ones(2, 2), "fc.bias": torch.zeros(2)}


def _lightning() -> dict[str, Any]:
    callbacks = {"ModelCheckpoint": {"best_model_score": torch.tensor(0.5), "kth": np.float64(0.5)}}
    return {"epoch": 1, "state_dict": _WEIGHTS, "callbacks": callbacks, "rng": {"numpy": np.random.get_state()}}


RANDOM = {
    "accelerate": lambda: {
        "step": 3,
        "random_state": random.getstate(),
        "numpy_random_seed": np.random.get_state(),
        "torch_manual_seed": torch.get_rng_state(),
    },
    "trainer": lambda: {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()},
    "lightning": _lightning,
    "mmengine": lambda: {"meta": {"seed": np.int64(3)}, "state_dict": _WEIGHTS, "message_hub": {"lr": np.ones(3)}},
    "dict": lambda: {"model": _WEIGHTS, "rng": np.random.get_state(legacy=False)},
    "generator": lambda: {"model": _WEIGHTS, "rng": np.random.default_rng(0)},
    "bit generator": lambda: {"model": _WEIGHTS, "rng": np.random.default_rng(0).bit_generator.state},
    "RandomState": lambda: {"model": _WEIGHTS, "rng": np.random.RandomState(0)},
    "Random": lambda: {"model": _WEIGHTS, "rng": random.Random(0)},
    "duration": lambda: {"model": _WEIGHTS, "took": np.timedelta64(3, "s"), "best": np.float32(0.5)},
    "namespace": lambda: {"model": _WEIGHTS, "args": argparse.Namespace(rng=np.random.get_state())},
    "class": lambda: {"model": _WEIGHTS, "kind": argparse.Namespace},
}  # fmt: skip


def _follow(line: str, folder: Path) -> Any:
    """Do what the line says, word for word, and what the command in it says then; what is loaded in the end."""
    assert line.startswith("next · "), line
    line = line.removeprefix("next · ")
    if line.startswith("ckptdoctor "):
        done = run(*shlex.split(line)[1:], cwd=folder)
        assert done.returncode == 0, done.stdout.decode()
        line = done.stdout.decode().splitlines()[-1].removeprefix("next · ")
        assert "ckptdoctor" not in line
    return eval(line, {"torch": torch, "ckptdoctor": ckptdoctor})


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("name", RANDOM)
def test_the_next_line_loads_what_a_repair_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, protocol: int
):
    """Status 0 means that torch.load loads it as it stands; whatever the last line says works, word for word."""
    monkeypatch.chdir(tmp_path)
    torch.save(RANDOM[name](), "a.pt", pickle_protocol=protocol)
    done = run("fix", "a.pt", cwd=tmp_path)
    left = tmp_path / "a.fixed.pt"
    left = left if left.exists() else tmp_path / "a.pt"
    assert (done.returncode == 0) == (torch_refuses(left) == "")
    line = done.stdout.decode().splitlines()[-1]
    if done.returncode == 0 and left.name == "a.pt":
        assert "nothing to repair" in line or "W301" in done.stdout.decode()
    else:
        assert _follow(line, tmp_path) is not None
        assert ("weights_only=False" in line or "ckptdoctor" in line) == (done.returncode == 1)


def test_what_runs_code_is_never_offered_to_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A file that names os.system is opened by what runs nothing."""
    monkeypatch.chdir(tmp_path)
    torch.save({"model": _WEIGHTS, "call": os.system}, "a.pt")
    done = run("fix", "a.pt", cwd=tmp_path)
    assert done.returncode == 1
    line = done.stdout.decode().splitlines()[-1]
    assert line == 'next · ckptdoctor.load("a.pt")["model"]'
    assert _follow(line, tmp_path).keys() == _WEIGHTS.keys()


def test_a_class_that_no_python_has_is_not_offered_to_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One flipped bit in a name is enough."""
    monkeypatch.chdir(tmp_path)
    torch.save({"model": _WEIGHTS, "odd": fractions.Fraction(1, 3)}, "a.pt", _use_new_zipfile_serialization=False)
    Path("a.pt").write_bytes(Path("a.pt").read_bytes().replace(b"Fraction", b"FractiOn"))
    line = run("fix", "a.pt", cwd=tmp_path).stdout.decode().splitlines()[-1]
    assert line.startswith("next · ckptdoctor.") and _follow(line, tmp_path).keys() == _WEIGHTS.keys()


def test_a_refusal_ends_with_a_command_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It names the keys, and the complete command, which leaves out just these."""
    monkeypatch.chdir(tmp_path)
    odd = {"model": _WEIGHTS, "rng": {"numpy[0]": np.random.default_rng(0), "b c": [np.timedelta64(1, "s")]}, "n": 1}
    torch.save(odd, "a b.pt")
    done = run("fix", "a b.pt", "--weights-only-safe", cwd=tmp_path)
    said = done.stdout.decode()
    assert done.returncode == 1
    assert "rng/numpy[0] cannot be loaded" in said and "rng/b c/0 cannot be loaded" in said
    line = next(line for line in said.splitlines() if "leave it out: " in line)
    words = shlex.split(line.partition("leave it out: ")[2])
    assert run(*words[1:], cwd=tmp_path).returncode == 0
    loaded = torch.load("a b.fixed.pt")
    assert (loaded["rng"], loaded["n"], loaded["model"].keys()) == ({}, 1, _WEIGHTS.keys())


def test_a_file_for_another_device_is_loaded_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The line says so where the file names a device that this machine may not have."""
    monkeypatch.chdir(tmp_path)
    builders.save({"module.w": T((2,), device="cuda:1")}, tmp_path / "a.pt")
    done = run("fix", "a.pt", "--strip-module", cwd=tmp_path)
    line = done.stdout.decode().splitlines()[-1]
    assert line == 'next · torch.load("a.fixed.pt", map_location="cpu")'
    assert _follow(line, tmp_path).keys() == {"w"}


def test_the_next_line_names_the_output_that_is_there(tmp_path: Path):
    """Not the file that was written first, which nobody ever sees; and it does what it says."""
    (example,) = [each for each in examined.sick("A712") if each.title == "among others"]
    output = tmp_path / "fixed.pt"
    said = run_here("fix", build(example, tmp_path), "--unsafe-fixes", "-o", output, cwd=tmp_path)
    words = shlex.split(said.stdout.decode().split("next · ckptdoctor ")[1])
    assert words == ["convert", str(output), str(tmp_path / "fixed.safetensors")]
    assert run_here(*words, cwd=tmp_path).returncode == 0
