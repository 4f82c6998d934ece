"""What has just been saved is judged without a word of it reaching the training, unless that is asked for."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

import ckptdoctor
from ckptdoctor.integrations.ray import validate
from ckptdoctor.integrations.saved import SavedCheckpoints
from tests.runs.generated import adam, weights

NAN = {"layers.0.bias": torch.full((24,), float("nan"))}


def save(path, step, **changed):
    """Save weights and Adam's state as a script does."""
    torch.save({"model": weights() | changed, "optimizer": adam(), "step": step, "scheduler": {}, "rng": 1}, path)
    return str(path)


def test_each_has_a_line(tmp_path, capsys):
    """On stderr: the second is compared with the first."""
    saved = SavedCheckpoints()
    for step in (1, 2):
        assert saved.check(save(tmp_path / f"step_{step}.pt", step)).step == step
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("ckptdoctor: ") and first.endswith("valid: V0 headers, V1 bytes, V2 values, V3 resumable")
    assert " after step_1.pt · weights unchanged · valid: " in second


def test_nothing_is_raised_unless_asked(tmp_path, monkeypatch):
    """Neither of a checkpoint that is invalid or not there, nor of a bug; with ``fail_on`` what it names is raised."""
    told = []
    path = save(tmp_path / "step_1.pt", 1, **NAN)
    saved = SavedCheckpoints(tell=told.append)
    assert not saved.check(path).valid and "invalid: 24 NaN in 1 tensor" in told[0]
    assert saved.check(str(tmp_path / "gone.pt")) is None and "gone.pt could not be checked: " in told[1]
    torch.save(weights(), tmp_path / "weights.pt")
    for word, file, said in (
        ("invalid", path, "is invalid: 24 NaN"),
        ("unresumable", "weights.pt", "is not resumable"),
    ):
        with pytest.raises(ckptdoctor.DamagedError, match=said):
            SavedCheckpoints(word, tell=told.append).check(str(tmp_path / file))
    assert SavedCheckpoints("invalid", tell=told.append).check(str(tmp_path / "weights.pt")).valid
    assert SavedCheckpoints("invalid", True, told.append).check(path).valid  # only headers are read
    with pytest.raises(ckptdoctor.UsageError, match="is one of invalid, unresumable and never"):
        SavedCheckpoints("always")
    monkeypatch.setattr("ckptdoctor.integrations.saved.judged", lambda *given, **more: 1 / 0)
    assert SavedCheckpoints("invalid", tell=told.append).check(path) is None
    assert "could not be checked: ckptdoctor itself failed: ZeroDivisionError" in told[-1]


class Stored:
    """A checkpoint as Ray Train hands it over: a folder that is made available."""

    def __init__(self, path):
        self.path = str(path)

    @contextmanager
    def as_directory(self):
        yield self.path


def test_metrics_for_ray(tmp_path):
    """Of a folder with a checkpoint and what scripts save next to it; of an empty one that it is."""
    for name in ("good", "bad", "empty"):
        (tmp_path / name).mkdir()
    torch.save({"epoch": 3}, tmp_path / "good" / "extra_state.pt")
    save(tmp_path / "good" / "model.pt", 7)
    save(tmp_path / "bad" / "model.pt", 7, **NAN)
    assert validate(Stored(tmp_path / "good")) == {
        "ckptdoctor_valid": True,
        "ckptdoctor_levels": "V0 V1 V2 V3",
        "ckptdoctor_trouble": "",
        "ckptdoctor_unresumable": "",
        "ckptdoctor_step": 7,
    }
    said = validate(Stored(tmp_path / "bad"))
    assert not said["ckptdoctor_valid"] and "24 NaN in 1 tensor" in said["ckptdoctor_trouble"]
    assert validate(Stored(tmp_path / "bad"), headers_only=True)["ckptdoctor_valid"]
    assert validate(Stored(tmp_path / "empty"))["ckptdoctor_trouble"] == "it is empty"
    with pytest.raises(ckptdoctor.DamagedError, match=r"model\.pt is invalid: 24 NaN"):
        validate(Stored(tmp_path / "bad"), fail_on="invalid")
