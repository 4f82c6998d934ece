"""References learnt from other checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.errors import CkptDoctorError, DamagedError, UsageError
from tests import broken_shards
from tests.target.asked import of_checkpoint


def _net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))


def _saved(value: object, path: Path) -> str:
    torch.save(value, path)
    return str(path)


def test_a_state_dict_gives_its_keys_shapes_and_dtypes(tmp_path: Path) -> None:
    """Every tensor of the model is expected as it is, counters with no dimension too."""
    state_dict = _net().half().state_dict()
    found = of_checkpoint(_saved(state_dict, tmp_path / "a.pt"))
    assert {key: (each.shape, each.dtype.name if each.dtype else None) for key, each in found.tensors.items()} == {
        key: (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for key, tensor in state_dict.items()
    }
    assert found.source == str(tmp_path / "a.pt")
    assert found.root == ()


def test_a_training_checkpoint_gives_its_model(tmp_path: Path) -> None:
    """The optimizer and averaged weights are no candidates beside the model."""
    net = _net()
    optimizer = torch.optim.Adam(net.parameters())
    saved = {"epoch": 1, "model": net.state_dict(), "ema": net.state_dict(), "optimizer": optimizer.state_dict()}
    found = of_checkpoint(_saved(saved, tmp_path / "a.pt"))
    assert found.root == ("model",)


def test_safetensors_and_legacy_files_will_do(tmp_path: Path) -> None:
    """Whatever can be read can be a reference."""
    state_dict = _net().state_dict()
    save_file(state_dict, tmp_path / "a.safetensors")
    torch.save(state_dict, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    one = of_checkpoint(str(tmp_path / "a.safetensors"))
    other = of_checkpoint(str(tmp_path / "old.pt"))
    assert dict(one.tensors) == dict(other.tensors)


def test_two_models_ask_for_a_choice(tmp_path: Path) -> None:
    """Nobody guesses between two networks: both are named, and --root chooses."""
    path = _saved({"generator": _net().state_dict(), "critic": _net().state_dict()}, tmp_path / "gan.pt")
    with pytest.raises(UsageError) as caught:
        of_checkpoint(path)
    assert "generator" in caught.value.message
    assert "critic" in caught.value.message
    assert "--root" in caught.value.message
    assert of_checkpoint(path, "critic").root == ("critic",)


def test_a_root_of_the_other_file_does_no_harm(tmp_path: Path) -> None:
    """A root that the reference does not have is left to the examined file, where there is only one to choose."""
    assert of_checkpoint(_saved(_net().state_dict(), tmp_path / "a.pt"), "state_dict").root == ()


def test_a_file_without_a_model_is_no_reference(tmp_path: Path) -> None:
    """An optimizer's file is refused with its name."""
    path = _saved(torch.optim.SGD(_net().parameters(), lr=0.1, momentum=0.9).state_dict(), tmp_path / "opt.pt")
    with pytest.raises(UsageError, match=r"opt\.pt has no model state dict"):
        of_checkpoint(path)


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    """A missing file and a text file are errors of the one tree."""
    (tmp_path / "x.pt").write_text("hello")
    for path in (tmp_path / "x.pt", tmp_path / "missing.pt"):
        with pytest.raises(CkptDoctorError):
            of_checkpoint(str(path))


def test_a_file_tells_what_is_tied(tmp_path: Path) -> None:
    """Keys with one view of one storage; views of other parts of it, and equal values, are not."""
    weight = torch.ones(4, 2)
    state_dict = {"a": weight, "b": weight, "c": weight[:2], "d": weight.clone(), "e": torch.zeros(0), "f": weight.T}
    assert of_checkpoint(_saved(state_dict, tmp_path / "a.pt")).ties == (("a", "b"),)


def test_extra_state_of_any_kind_is_told(tmp_path: Path) -> None:
    """Tensors and others; what only ends like it is none."""
    state_dict = {"a._extra_state": None, "b._extra_state": torch.ones(2), "c.w": torch.ones(2), "my_extra_state": 3}
    assert of_checkpoint(_saved(state_dict, tmp_path / "a.pt")).extra == {"a._extra_state", "b._extra_state"}


@pytest.mark.parametrize("suffix", ["bin", "safetensors"])
def test_a_folder_without_a_shard_is_no_reference(tmp_path: Path, suffix: str) -> None:
    """Nothing says what the missing tensors are like, so the file is named instead."""
    broken_shards.folder(tmp_path / "m", suffix, "missing")
    with pytest.raises(DamagedError, match=f"{broken_shards.name(2, suffix)} is missing, with 8 tensors of the index"):
        of_checkpoint(str(tmp_path / "m"))
