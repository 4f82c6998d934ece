"""D606: tensors that have a shape and no values."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.findings import Severity
from tests.rules.examined import found, loads


def test_a_model_on_the_meta_device(tmp_path):
    """torch loads it without a word, and load_state_dict refuses it with the quoted line."""
    torch.save(torch.nn.Linear(3, 2, device="meta").state_dict(), tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "D606")
    assert finding.severity is Severity.ERROR
    assert finding.message == "both tensors have a shape and no values"
    with pytest.raises(RuntimeError) as caught:
        torch.nn.Linear(3, 2).load_state_dict(loads(tmp_path / "a.pt"))
    assert finding.torch_says[0] in str(caught.value)


def test_one_that_was_left_on_disk(tmp_path):
    """The tensors without values are named."""
    net = torch.nn.ModuleDict({"body": torch.nn.Linear(3, 2), "head": torch.nn.Linear(2, 2, device="meta")})
    torch.save({"model": net.state_dict(), "step": 3}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "D606")
    assert finding.keys == (("model", "head.weight"), ("model", "head.bias"))
    assert "head.weight" in finding.message
