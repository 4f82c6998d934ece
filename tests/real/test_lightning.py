"""A checkpoint that a real Lightning trainer has written, and the bare model."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.libraries import lightning, real
from tests.real.bench import equal

pytestmark = [real, pytest.mark.filterwarnings("ignore")]


def training(width=8):
    """A network with a weighted loss, which is part of the state dict."""

    class Training(lightning.LightningModule):
        def __init__(self, width):
            super().__init__()
            self.save_hyperparameters()
            self.net = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 3))
            self.loss = nn.CrossEntropyLoss(weight=torch.ones(3))

        def training_step(self, batch, index):
            return self.loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    return Training(width)


@pytest.fixture
def trained(bench):
    """A training of one step, saved by the trainer as last.ckpt."""
    module = training()
    data = DataLoader(TensorDataset(torch.randn(8, 4), torch.randint(3, (8,))), batch_size=4)
    trainer = lightning.Trainer(accelerator="cpu", max_steps=1, barebones=True)
    trainer.fit(module, data)
    trainer.save_checkpoint("last.ckpt")
    return module


def test_the_bare_network_loads_a_trainers_checkpoint(trained, bench):
    """The state dict is taken out, its prefix stripped, and the state of the loss dropped."""
    target = training().net
    torch.save(target.state_dict(), "target.pt")
    status, said = bench.fix("last.ckpt", "target.pt")
    assert status == 0
    assert [code for code in ("W301", "N409", "N422") if code in said] == ["W301", "N409", "N422"]
    target.load_state_dict(bench.result(), strict=True)
    assert equal(target.state_dict(), trained.net.state_dict())
    target.eval(), trained.eval()
    assert torch.equal(target(torch.ones(1, 4)), trained.net(torch.ones(1, 4)))


def test_a_network_of_another_width_is_refused(trained, bench):
    """The checkpoint of a narrower network is never cut or padded."""
    torch.save(training(16).net.state_dict(), "target.pt")
    status, said = bench.fix("last.ckpt", "target.pt")
    assert status == 1
    assert "refused · no chain of repairs makes this file fit target.pt: 0 of 9 keys would fit." in said
