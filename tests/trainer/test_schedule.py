"""The learning rate falls along half a cosine."""

from __future__ import annotations

import pytest
import torch

from ckptdoctor.trainer.config import Config
from ckptdoctor.trainer.schedule import learning_rate


@pytest.mark.parametrize("epochs", [1, 2, 10])
def test_it_is_that_of_torch(epochs):
    """Every epoch has the learning rate that CosineAnnealingLR gives it."""
    config = Config(lr=0.3, epochs=epochs)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in range(epochs):
        assert learning_rate(config, epoch) == pytest.approx(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
