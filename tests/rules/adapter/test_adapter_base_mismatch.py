"""L909 where little is known of the model."""

from __future__ import annotations

import json

import torch
from safetensors.torch import save_file

import ckptdoctor


def test_an_error_without_shapes_does_not_tell_another_model(tmp_path):
    """That a model lacks the layers of an adapter is not said of one of which no tensor is known."""
    adapter = {f"base_model.model.fc.lora_{side}.weight": torch.ones(2, 2) for side in "AB"}
    save_file(adapter, tmp_path / "adapter_model.safetensors")
    error = "\n".join(
        [
            "Error(s) in loading state_dict for Net:",
            '\tMissing key(s) in state_dict: "fc.weight".',
            f"\tUnexpected key(s) in state_dict: {', '.join(map(json.dumps, adapter))}.",
        ]
    )
    report = ckptdoctor.check(str(tmp_path / "adapter_model.safetensors"), error=error)
    assert "R002" in {finding.code for finding in report.findings}
    assert "L909" not in {finding.code for finding in report.findings}
