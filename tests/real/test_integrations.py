"""The hooks of real trainers: each checkpoint is checked when the library has saved it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ckptdoctor
from tests.libraries import lightning, real, transformers

pytestmark = [real, pytest.mark.filterwarnings("ignore")]


class Network(nn.Module):
    """A network as the Trainer calls it, of which one weight becomes NaN in a step."""

    def __init__(self, sick=0):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.steps, self.sick = 0, sick

    def forward(self, x, labels):
        self.steps += 1
        if self.steps == self.sick:
            self.layer.bias.data[0] = float("nan")
        return {"loss": nn.functional.cross_entropy(self.layer(x), labels)}


@pytest.mark.parametrize("fail_on", ["never", "invalid"])
def test_the_trainer_of_transformers(fail_on, tmp_path, capsys):
    """One line for each save, as they come; a NaN ends the training where that is asked for, and else does not."""
    from ckptdoctor.integrations.transformers import CheckCheckpoints

    data = [{"x": torch.randn(4), "labels": torch.tensor(at % 3)} for at in range(12)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=6, save_steps=2, per_device_train_batch_size=2, logging_strategy="no",
        report_to=[], disable_tqdm=True, use_cpu=True, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = transformers.Trainer(
        Network(sick=4), arguments, train_dataset=data, callbacks=[CheckCheckpoints(fail_on=fail_on)]
    )
    if fail_on == "never":
        trainer.train()
    else:
        with pytest.raises(ckptdoctor.DamagedError, match=r"checkpoint-4 is invalid: .*NaN in .*layer.bias"):
            trainer.train()
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ckptdoctor: ")]
    assert [line.split(" · ")[1] for line in said] == ["step 2", "step 4", "step 6"][: len(said)]
    assert len(said) == (3 if fail_on == "never" else 2)
    assert said[0].endswith("valid: V0 headers, V2 values, V3 resumable")
    assert " after checkpoint-2 · invalid: " in said[1] and "the first is model/layer.bias (V651 nan-or-inf)" in said[1]


@pytest.mark.parametrize("fail_on", ["never", "invalid"])
def test_a_fit_of_lightning(fail_on, tmp_path, capsys):
    """The same for what ModelCheckpoint saves; afterwards the trainer is as it was."""
    from ckptdoctor.integrations.lightning import CheckCheckpoints

    class Training(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = Network(sick=7)

        def training_step(self, batch, index):
            return self.network(*batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    data = DataLoader(TensorDataset(torch.randn(8, 4), torch.randint(3, (8,))), batch_size=2)
    keep = lightning.pytorch.callbacks.ModelCheckpoint(tmp_path, save_top_k=-1)
    trainer = lightning.Trainer(
        default_root_dir=tmp_path, max_epochs=3, callbacks=[keep, CheckCheckpoints(fail_on=fail_on)], logger=False,
        accelerator="cpu", enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    if fail_on == "never":
        trainer.fit(Training(), data)
    else:
        with pytest.raises(ckptdoctor.DamagedError, match=r"epoch=1-step=8.ckpt is invalid: .*NaN in"):
            trainer.fit(Training(), data)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ckptdoctor: ")]
    assert [line.split(" · ")[1] for line in said] == ["step 4", "step 8", "step 12"][: len(said)]
    assert len(said) == (3 if fail_on == "never" else 2)
    assert said[0].endswith("valid: V0 headers, V1 bytes, V2 values, V3 resumable")
    assert " after epoch=0-step=4.ckpt · invalid: " in said[1]
    assert "save_checkpoint" not in vars(trainer)


@pytest.mark.slow
def test_a_training_of_ray(tmp_path):
    """Ray Train validates each checkpoint in a task of its own, and its result has the metrics."""
    train = pytest.importorskip("ray.train", reason="Ray is not installed: pip install 'ray[train]'")
    import ray
    from ray.train.torch import TorchTrainer

    from ckptdoctor.integrations.ray import validate

    def loop():
        import os
        import tempfile

        import torch

        for epoch in range(2):
            with tempfile.TemporaryDirectory() as folder:
                weight = torch.full((4, 4), 0.5 if epoch == 0 else float("nan"))
                torch.save({"model": {"fc.weight": weight}, "epoch": epoch}, os.path.join(folder, "model.pt"))
                saved = train.Checkpoint.from_directory(folder)
                train.report({"loss": 1.0}, checkpoint=saved, validation=True)

    ray.init("local", num_cpus=2, include_dashboard=False)
    try:
        trainer = TorchTrainer(
            loop,
            scaling_config=train.ScalingConfig(num_workers=1),
            run_config=train.RunConfig(storage_path=str(tmp_path), name="run"),
            validation_config=train.ValidationConfig(fn=validate),
        )
        found = [metrics for _, metrics in trainer.fit().best_checkpoints]
    finally:
        ray.shutdown()
    assert [(each["loss"], each["ckptdoctor_valid"]) for each in found] == [(1.0, True), (1.0, False)]
    assert "16 NaN in 1 tensor" in found[1]["ckptdoctor_trouble"]
