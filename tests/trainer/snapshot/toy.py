"""The smallest strategy there is: one network, one optimizer, wrapped as a test asks."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.strategies.strategy import StateTensors, StepTally, Strategy
from ckptdoctor.trainer.team import Team

ALONE = Team(torch.device("cpu"))


class Net(nn.Module):
    """A convolution, a batch norm with its counter, dropout, and a classifier."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(4 * 36, 10)

    def forward(self, images):
        return self.fc(self.drop(torch.relu(self.norm(self.conv(images)))).flatten(1))


class Toy(Strategy):
    """``wrapper`` is what the network is wrapped in, such as ``nn.DataParallel``, which puts ``prefix`` before keys."""

    def __init__(self, config: RunConfig, team: Team = ALONE, wrapper=None, prefix: str = "", device: str = "cpu"):
        self.config, self.team, self.prefix = config, team, prefix
        torch.manual_seed(7)
        self.model, self.blank = Net(), Net()
        self.wrapped = self.model if wrapper is None else wrapper(self.model)
        self.ema = AveragedModel(self.model) if config.ema else None
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if config.amp == "fp16" else None
        kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.SGD
        self.optimizer = kind(self.model.parameters(), lr=config.lr, **_momentum(config))
        self._device = torch.device(device)

    @property
    def devices(self) -> tuple[torch.device, ...]:
        return (self._device,)

    def step(self, inputs: torch.Tensor, labels: torch.Tensor) -> StepTally:
        self.model.train()
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        if self.ema is not None:
            self.ema.update_parameters(self.model)
        return StepTally(loss.detach(), torch.tensor(0), len(inputs))

    def predict(self, inputs: torch.Tensor, ema: bool = False) -> torch.Tensor:
        return (self.ema if ema and self.ema is not None else self.model)(inputs)

    def set_learning_rate(self, lr: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def state_dict(self) -> StateTensors:
        return _copied(self.model.state_dict())

    def wrapped_state_dict(self) -> StateTensors:
        return _copied(self.wrapped.state_dict())

    def ema_state_dict(self) -> StateTensors | None:
        return None if self.ema is None else _copied(self.ema.state_dict())

    def optimizer_state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load(self, weights: StateTensors, optimizer: dict[str, Any], ema: StateTensors | None = None) -> None:
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict(optimizer)
        if self.ema is not None and ema is not None:
            self.ema.load_state_dict(ema)


def train(strategy: Strategy, steps: int) -> list[float]:
    """Steps on random batches, drawn from torch's and Python's generators as they go; the losses."""
    losses = []
    for _ in range(steps):
        batch = torch.randn(8, 1, 8, 8)
        labels = torch.tensor([random.randrange(10) for _ in range(8)])
        losses.append(float(strategy.step(batch, labels).loss))
    return losses


def _momentum(config: RunConfig) -> dict[str, float]:
    return {} if config.optimizer == "adamw" else {"momentum": config.momentum}


def _copied(state: dict[str, torch.Tensor]) -> StateTensors:
    return {key: value.clone() for key, value in state.items()}
