"""Every way of training can do this; the loop knows nothing else of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.team import Team

StateTensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class StepTally:
    """The counts of a step on this rank: sums over images, so that steps and ranks can be added up.

    ``loss`` and ``correct`` are tensors without dimensions that stay on their device: reading their values would make
    the CPU wait for a GPU after every step.
    """

    loss: torch.Tensor
    correct: torch.Tensor
    images: int
    replica_batches: tuple[int, ...] = ()
    """How many images each replica of this process saw."""
    work: tuple[str, ...] = ()
    """The lines of --show-work, with the first step."""


def precise(value: torch.Tensor) -> torch.Tensor:
    """Return a number that many others may be added to: in double precision, where the device has it. MPS has not."""
    return value if value.device.type == "mps" else value.double()


class Strategy(ABC):
    """One way of training one network on one or many devices.

    ``model`` is the bare network, None where there is no module (manual). ``wrapped`` is what the loop really calls
    and what a careless ``torch.save(model.state_dict())`` would save: DataParallel, DDP, compiled, or ``model`` itself.
    ``prefix`` is what the wrapping puts before every key, "" for none.
    """

    config: RunConfig
    team: Team
    model: nn.Module | None
    blank: nn.Module | None
    """A network like ``model``, on the CPU and never wrapped or sharded: to try a checkpoint on, or to pickle."""
    wrapped: nn.Module | None
    prefix: str = ""
    scaler: torch.amp.GradScaler | None = None
    ema: nn.Module | None = None

    parameter_count: int
    """Of the whole network, however it is spread."""

    @property
    @abstractmethod
    def devices(self) -> tuple[torch.device, ...]:
        """The device of each replica in this process."""

    @abstractmethod
    def step(self, inputs: torch.Tensor, labels: torch.Tensor) -> StepTally:
        """Take one optimizer step on this rank's share of the batch: inputs (n, …) and labels (n,) on the CPU."""

    @abstractmethod
    def predict(self, inputs: torch.Tensor, ema: bool = False) -> torch.Tensor:
        """Return logits (n, classes) in eval mode, without gradients; of the averaged weights when ``ema``."""

    def begin(self, epoch: int, step: int) -> None:
        """An epoch begins, or goes on, with ``step``; both count from 0. What is random may depend on it."""
        return

    @abstractmethod
    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate of the steps to come."""

    @abstractmethod
    def state_dict(self) -> StateTensors:
        """Return all weights and buffers under their bare keys, whole, on the CPU. Collective: every rank calls it."""

    @abstractmethod
    def wrapped_state_dict(self) -> StateTensors:
        """Return the same as the wrapped model names them. Collective."""

    @abstractmethod
    def optimizer_state_dict(self) -> dict[str, Any]:
        """Return {"state": {index: {…}}, "param_groups": […]}, whole, on the CPU. Collective."""

    def ema_state_dict(self) -> StateTensors | None:
        """Return the result of ``ema.state_dict()``, whole, on the CPU, or None where there is no average.

        Collective.
        """
        return None

    @abstractmethod
    def load(self, weights: StateTensors, optimizer: dict[str, Any], ema: StateTensors | None = None) -> None:
        """Take over what the three ``…state_dict`` functions gave, on any world size. Collective."""
