"""Runs that real trainers have left: ``ckptdoctor.latest`` gives what the library itself resumes from."""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ckptdoctor
from tests.libraries import accelerate, lightning, real, transformers

pytestmark = [real, pytest.mark.filterwarnings("ignore")]


class Network(nn.Module):
    """A network as the Trainer calls it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x, labels):
        return {"loss": nn.functional.cross_entropy(self.layer(x), labels)}


def cut(path):
    """Cut a file off."""
    path.write_bytes(path.read_bytes()[:-40])


def test_the_trainer_of_transformers(tmp_path):
    """``get_last_checkpoint`` agrees as long as nothing is broken, and the Trainer resumes from what is left."""
    data = [{"x": torch.randn(4), "labels": torch.tensor(at % 3)} for at in range(12)]

    def trainer(steps):
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), max_steps=steps, save_steps=2, per_device_train_batch_size=2,
            report_to=[], disable_tqdm=True, use_cpu=True, dataloader_pin_memory=False,
        )  # fmt: skip
        return transformers.Trainer(Network(), arguments, train_dataset=data)

    first = trainer(6)
    first.train()
    first.save_model()
    found = ckptdoctor.latest(tmp_path, resumable=True)
    assert found.path == transformers.trainer_utils.get_last_checkpoint(str(tmp_path))
    assert (found.step, found.passed_over) == (6, ())
    cut(tmp_path / "checkpoint-6" / "optimizer.pt")
    found = ckptdoctor.latest(tmp_path, resumable=True)
    assert os.path.basename(found) == "checkpoint-4"
    again = trainer(8)
    again.train(resume_from_checkpoint=str(found))
    assert again.state.global_step == 8
    assert ckptdoctor.latest(tmp_path, resumable=True, verified=True).step == 8


def test_model_checkpoint_of_lightning(tmp_path):
    """Numbered files and ``last.ckpt`` of two fits in one folder; the file it gives is what a fit resumes from."""

    class Training(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    data = DataLoader(TensorDataset(torch.randn(8, 4), torch.randint(3, (8,))), batch_size=2)

    def fit(epochs, path=None):
        keep = lightning.pytorch.callbacks.ModelCheckpoint(save_top_k=-1, save_last=True)
        trainer = lightning.Trainer(
            default_root_dir=tmp_path, max_epochs=epochs, callbacks=[keep], accelerator="cpu",
            enable_progress_bar=False, enable_model_summary=False, logger=lightning.pytorch.loggers.CSVLogger(tmp_path),
        )  # fmt: skip
        trainer.fit(Training(), data, ckpt_path=path)
        return trainer

    fit(2)
    found = ckptdoctor.latest(tmp_path, resumable=True)
    assert (os.path.basename(found), found.step, found.disagreements) == ("epoch=1-step=8.ckpt", 8, ())
    assert fit(3, str(found)).global_step == 12
    found = ckptdoctor.latest(tmp_path, resumable=True, verified=True)
    assert found.path.endswith("version_1/checkpoints/epoch=2-step=12.ckpt")


def test_the_states_of_accelerate(tmp_path):
    """With automatic names: the state that it gives is loaded."""
    settings = accelerate.utils.ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True)
    with_states = accelerate.Accelerator(cpu=True, project_config=settings)
    network = nn.Linear(4, 3)
    network, optimizer = with_states.prepare(network, torch.optim.Adam(network.parameters()))
    for _ in range(12):
        with_states.backward(network(torch.ones(2, 4)).sum())
        optimizer.step()
        with_states.save_state()
    found = ckptdoctor.latest(tmp_path, resumable=True)
    assert (os.path.basename(found), found.disagreements) == ("checkpoint_11", ())
    (tmp_path / "checkpoints" / "checkpoint_11" / "random_states_0.pkl").unlink()
    found = ckptdoctor.latest(tmp_path, resumable=True)
    assert os.path.basename(found) == "checkpoint_10"
    with_states.load_state(str(found))
