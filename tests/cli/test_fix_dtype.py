"""``fix --dtype`` on the command line: the loss is part of the plan, and a bad dtype is one sentence."""

from __future__ import annotations

import json

import pytest
import torch

from ckptdoctor.cli.main import main
from tests.repair.checkpoints import save


@pytest.fixture
def run(capsys):
    """Gives the exit status and what was printed."""

    def run(*arguments: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as end:
            main(["fix", *arguments])
        said = capsys.readouterr()
        return end.value.code, said.out + said.err

    return run


def test_the_loss_is_shown(tmp_path, run):
    """Before anything is written, and in JSON as numbers."""
    path = str(save({"fc.weight": torch.tensor([[0.1, 1e-10]])}, tmp_path / "m.pt"))
    shown = run(path, "--dtype", "fp16", "--diff")[1]
    assert "fc.weight [float32]" in shown
    assert "2 values, 2 rounded, 1 value made 0" in shown
    found = json.loads(run(path, "--dtype", "half", "--format", "json")[1])
    assert found["steps"][0]["changes"][-1]["counts"] == {"value": 2, "value rounded": 2, "value made 0": 1}
    assert found["steps"][0]["safety"] == "unsafe"
    assert found["proof"]["computed"] == 1


def test_a_dtype_that_is_none(tmp_path, run):
    """A usage error that names those that there are."""
    status, said = run(str(save({"w": torch.ones(2)}, tmp_path / "m.pt")), "--dtype", "int4")
    assert status == 2
    assert "float64, float32, float16, bfloat16" in said


def test_overflow_is_refused(tmp_path, run):
    """Exit status 1, and nothing is written."""
    status, said = run(str(save({"fc.weight": torch.full((2, 2), 1e6)}, tmp_path / "m.pt")), "--dtype", "fp16")
    assert status == 1
    assert "refused · 4 values become infinite: float16 ends at 65,504" in said
    assert not (tmp_path / "m.fixed.pt").exists()
