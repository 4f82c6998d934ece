"""Ray Train itself calls the function while it trains, and keeps what it says with each checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ckptdoctor.integrations.ray import validate
from tests.libraries import real

ROOT = Path(__file__).parents[2]


def train():
    """Report two checkpoints, of which the second has a NaN."""
    import tempfile

    import torch
    from ray.train import Checkpoint, report

    for step in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            weights = {f"layers.{at}.weight": torch.rand(8, 8) + step for at in range(3)}
            if step == 2:
                weights["layers.1.weight"][0] = float("nan")
            torch.save({"model": weights, "step": step}, os.path.join(folder, "model.pt"))
            report({"loss": 1.0 / step}, checkpoint=Checkpoint.from_directory(folder), validation=True)


@pytest.mark.slow
@real
@pytest.mark.filterwarnings("ignore")  # of Ray and what it brings
@pytest.mark.timeout(900)
def test_each_checkpoint_of_a_training_has_what_was_found(tmp_path, monkeypatch):
    """Among its metrics, next to those of the training: which one is valid, and what is wrong with the other."""
    reason = "ray[train] is not installed: pip install -c constraints.txt -e '.[slow]'"
    pytest.importorskip("ray.train.v2.api.data_parallel_trainer", exc_type=ImportError, reason=reason)
    import ray
    from ray.train import RunConfig, ScalingConfig, ValidationConfig
    from ray.train.torch import TorchTrainer

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    ray.init("local", num_cpus=3, include_dashboard=False, log_to_driver=False)
    try:
        result = TorchTrainer(
            train,
            scaling_config=ScalingConfig(num_workers=1),
            run_config=RunConfig(name="run", storage_path=str(tmp_path)),
            validation_config=ValidationConfig(fn=validate),
        ).fit()
    finally:
        ray.shutdown()
    found = {metrics["ckptdoctor_step"]: metrics for _, metrics in result.best_checkpoints}
    assert (found[1]["ckptdoctor_valid"], found[1]["ckptdoctor_levels"], found[1]["loss"]) == (True, "V0 V1 V2", 1.0)
    assert not found[2]["ckptdoctor_valid"] and "8 NaN in 1 tensor" in found[2]["ckptdoctor_trouble"]
