"""``ckptdoctor fix -o``: the output's suffix says which container it is to be."""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.commands import run_here


def weights() -> OrderedDict[str, torch.Tensor]:
    """A layer as DataParallel saves it."""
    return OrderedDict({"module.w": torch.arange(6.0).reshape(2, 3), "module.b": torch.tensor([1.5], dtype=torch.half)})


def fix(folder: Path, *arguments: str) -> tuple[int, str]:
    done = run_here("fix", *arguments, cwd=folder)
    return done.returncode, done.stdout.decode()


def names(folder: Path) -> list[str]:
    """Every file there is, hidden ones too."""
    return sorted(path.name for path in folder.iterdir())


def same(loaded: Any) -> bool:
    return set(loaded) == {"w", "b"} and all(torch.equal(loaded[key], weights()[f"module.{key}"]) for key in loaded)


def test_a_torch_file_becomes_safetensors(tmp_path: Path):
    """Repaired and converted, and nothing else is left in the folder."""
    torch.save(weights(), tmp_path / "x.pt")
    status, said = fix(tmp_path, "x.pt", "-o", "y.safetensors")
    assert status == 0
    assert same(load_file(tmp_path / "y.safetensors"))
    assert "verified · nothing else changed · 2 of 2 tensors byte-identical · check finds nothing" in said
    assert said.splitlines()[-1] == 'next · safetensors.torch.load_file("y.safetensors")'
    assert names(tmp_path) == ["x.pt", "y.safetensors"]


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt", ".bin"])
def test_a_safetensors_file_becomes_one_of_torch(tmp_path: Path, suffix: str):
    """By every suffix of torch's files."""
    save_file(weights(), tmp_path / "x.safetensors", {"format": "pt"})
    assert fix(tmp_path, "x.safetensors", "-o", f"y{suffix}")[0] == 0
    assert same(torch.load(tmp_path / f"y{suffix}"))


def test_the_old_format_becomes_safetensors(tmp_path: Path):
    """By way of an archive."""
    torch.save(weights(), tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    assert fix(tmp_path, "x.pt", "--strip-module", "-o", "y.safetensors")[0] == 0
    assert same(load_file(tmp_path / "y.safetensors"))


def test_a_folder_gets_shards(tmp_path: Path):
    """As convert writes them."""
    torch.save(weights(), tmp_path / "x.pt")
    status, said = fix(tmp_path, "x.pt", "-o", "shards/")
    assert (status, names(tmp_path)) == (0, ["shards", "x.pt"])
    assert same(load_file(tmp_path / "shards" / "model.safetensors"))
    assert "from_pretrained" in said.splitlines()[-1]


def test_what_needs_no_repair_is_converted(tmp_path: Path):
    """And a suffix that asks for what the file is converts nothing."""
    torch.save({"w": torch.ones(2)}, tmp_path / "x.pt")
    assert fix(tmp_path, "x.pt", "-o", "y.safetensors")[0] == 0
    assert load_file(tmp_path / "y.safetensors")["w"].tolist() == [1, 1]
    status, said = fix(tmp_path, "x.pt", "-o", "z.pth")
    assert (status, said) == (0, "x.pt · nothing to repair; nothing was written\n")
    assert names(tmp_path) == ["x.pt", "y.safetensors"]


def test_what_is_no_tensor_is_kept_beside_it(tmp_path: Path):
    """Under the name of the original, not that of what lay between."""
    torch.save({"state_dict": weights(), "epoch": 3}, tmp_path / "x.pt")
    status, said = fix(tmp_path, "x.pt", "--strip-module", "-o", "y.safetensors")
    assert status == 0
    assert "kept      epoch in y.extra.json" in said
    kept = json.loads((tmp_path / "y.extra.json").read_text())
    assert (kept["source"], kept["contents"]) == ("x.pt", {"epoch": 3})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"model": weights(), "ema": {"module.w": torch.ones(2)}}, "choose: --root model"),
        ({**weights(), "s": torch.eye(3).to_sparse()}, "s is sparse_coo"),
    ],
    ids=["two sets", "sparse"],
)
def test_what_cannot_be_said_is_refused_and_nothing_is_left(tmp_path: Path, value: object, words: str):
    """In the words of convert, with the original's name."""
    torch.save(value, tmp_path / "x.pt")
    status, said = fix(tmp_path, "x.pt", "--strip-module", "-o", "y.safetensors")
    assert status == 1
    assert words in said
    assert "ckptdoctor-tmp" not in said
    assert names(tmp_path) == ["x.pt"]


def test_an_output_that_exists_is_replaced_only_by_force(tmp_path: Path):
    """And is what it was where the conversion is refused."""
    torch.save(weights(), tmp_path / "x.pt")
    (tmp_path / "y.safetensors").write_bytes(b"precious")
    assert fix(tmp_path, "x.pt", "-o", "y.safetensors")[0] == 1
    torch.save({"s": torch.eye(3).to_sparse(), "module.w": torch.ones(1)}, tmp_path / "s.pt")
    assert fix(tmp_path, "s.pt", "--strip-module", "-o", "y.safetensors", "--force")[0] == 1
    assert (tmp_path / "y.safetensors").read_bytes() == b"precious"
    assert fix(tmp_path, "x.pt", "-o", "y.safetensors", "--force")[0] == 0
    assert same(load_file(tmp_path / "y.safetensors"))


def test_the_report_says_what_it_becomes(tmp_path: Path):
    """Before it is written, and as JSON."""
    torch.save(weights(), tmp_path / "x.pt")
    assert "PyTorch .pt (zip) → safetensors" in fix(tmp_path, "x.pt", "-o", "y.safetensors", "--diff")[1]
    assert names(tmp_path) == ["x.pt"]
    said = json.loads(fix(tmp_path, "x.pt", "-o", "y.safetensors", "--format", "json")[1])
    assert (said["status"], said["converts"], said["loads"]) == ("repaired", "safetensors", True)
