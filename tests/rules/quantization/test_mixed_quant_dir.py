"""Q957 mixed-quant-dir."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file

from ckptdoctor.examine.file import check
from ckptdoctor.findings import Finding

PLAIN = {"fc.weight": torch.ones(64, 128).half()}
INT8 = {"fc.weight": torch.ones(64, 128, dtype=torch.int8), "fc.SCB": torch.ones(64)}


def found(path: Path) -> list[Finding]:
    """The findings of the rule."""
    return [each for each in check(str(path)).findings if each.code == "Q957"]


def folder(path: Path, own: dict[str, torch.Tensor], other: dict[str, torch.Tensor], name: str) -> Path:
    """A model's folder with another file."""
    save_file(own, path / "model.safetensors", {"format": "pt"})
    save_file(other, path / name)
    (path / "config.json").write_text("{}")
    return path / "model.safetensors"


def test_a_quantised_file_in_the_folder(tmp_path: Path) -> None:
    """Its header is looked at, whatever it is called."""
    [finding] = found(folder(tmp_path, PLAIN, INT8, "other.safetensors"))
    assert finding.message == "other.safetensors is next to it, with 1 layer of this model as bitsandbytes int8"


def test_a_plain_file_beside_the_quantised_one(tmp_path: Path) -> None:
    """The other way round."""
    [finding] = found(folder(tmp_path, INT8, PLAIN, "fp16.safetensors"))
    assert finding.message == "fp16.safetensors is next to it, with 1 layer of this model plain"


def test_files_of_other_layers_and_damaged_ones(tmp_path: Path) -> None:
    """Nothing is said of what cannot be mixed, and nothing fails."""
    path = folder(tmp_path, PLAIN, {"lora.weight": torch.ones(2)}, "lora.safetensors")
    (tmp_path / "empty.safetensors").write_bytes(b"")
    (tmp_path / "bomb.safetensors").write_bytes((1 << 62).to_bytes(8, "little"))
    (tmp_path / "odd.safetensors").write_bytes((4).to_bytes(8, "little") + b"[[[[")
    assert found(path) == []


def test_a_file_that_the_index_names_belongs_there(tmp_path: Path) -> None:
    """And without a config nobody reads the folder as a model."""
    path = folder(tmp_path, PLAIN, INT8, "other.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"fc.SCB": "other.safetensors"}}')
    assert found(path) == []
    (tmp_path / "model.safetensors.index.json").unlink()
    (tmp_path / "config.json").unlink()
    assert found(path) == []
