"""A strategy that trains an ``nn.Module`` with autograd and a ``torch.optim`` optimizer: all but ``manual`` are one."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.strategies.strategy import StateTensors, StepTally, Strategy, precise
from ckptdoctor.trainer.team import Team

EMA_DECAY = 0.99
"""How much of the average a step keeps: about the last hundred steps count."""

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class ModuleStrategy(Strategy):
    """One optimizer step in its plainest form; subclasses say how the model is wrapped and where its replicas are."""

    model: nn.Module
    wrapped: nn.Module

    def __init__(self, config: RunConfig, team: Team, model: nn.Module) -> None:
        """Move the model to the device of this rank (in place: a module, unlike a tensor, keeps its identity)."""
        self.config, self.team = config, team
        self.blank = deepcopy(model)
        self.model = model.to(team.device)
        self.parameter_count = sum(parameter.numel() for parameter in model.parameters())
        self.ema = self._averaged() if config.ema else None
        self.wrapped = self.wrap()
        self.optimizer = _optimizer(config, self.model)
        self.scaler = torch.amp.GradScaler(team.device.type) if config.amp == "fp16" else None

    def wrap(self) -> nn.Module:
        """Return the model as the loop calls it; sets ``prefix`` where that changes its keys."""
        if not self.config.compile:
            return self.model
        self.prefix = "_orig_mod."
        return compiled(self.model)

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """One replica: this rank's device."""
        return (self.team.device,)

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...]]:
        """Return logits of this rank's share, and how many of its images each replica saw."""
        return self.wrapped(inputs), (len(inputs),)

    def step(self, inputs: torch.Tensor, labels: torch.Tensor) -> StepTally:
        """Compute forward, loss and backward, and update; what differs happens inside ``wrapped``."""
        inputs, labels = self._moved(inputs), self._moved(labels)
        self.wrapped.train()
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            logits, replica_batches = self.forward(inputs)
            loss = cross_entropy(logits, labels)
        self._backward_and_update(loss)
        return _tally(loss.detach(), logits.detach(), labels, replica_batches)

    def _backward_and_update(self, loss: torch.Tensor) -> None:
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:  # float16 gradients vanish below 6e-8: the loss is scaled up, and what comes out is scaled back
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self._average()

    def _average(self) -> None:
        if isinstance(self.ema, AveragedModel):
            self.ema.update_parameters(self.model)

    def predict(self, inputs: torch.Tensor, ema: bool = False) -> torch.Tensor:
        """Return logits on the device, in eval mode and without gradients."""
        model = self.ema if ema and self.ema is not None else self.wrapped
        model.eval()
        with torch.no_grad(), self._autocast():
            logits: torch.Tensor = model(self._moved(inputs))
        return logits

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate of every parameter group."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def state_dict(self) -> StateTensors:
        """Return the model's own, copied to the CPU."""
        return on_cpu(self.model.state_dict())

    def wrapped_state_dict(self) -> StateTensors:
        """Return the wrapped model's, copied to the CPU."""
        return on_cpu(self.wrapped.state_dict())

    def ema_state_dict(self) -> StateTensors | None:
        """Return that of the averaged model: ``n_averaged``, and the weights under ``module.``."""
        return None if self.ema is None else on_cpu(self.ema.state_dict())

    def optimizer_state_dict(self) -> dict[str, Any]:
        """Return the optimizer's own; torch moves it to the right device when it is loaded."""
        state: dict[str, Any] = self.optimizer.state_dict()
        return {**state, "state": {index: on_cpu(slots) for index, slots in state["state"].items()}}

    def load(self, weights: StateTensors, optimizer: dict[str, Any], ema: StateTensors | None = None) -> None:
        """Load both strictly: a key too many or too few is an error."""
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict(optimizer)
        if self.ema is not None and ema is not None:
            self.ema.load_state_dict(ema)

    def _moved(self, batch: torch.Tensor) -> torch.Tensor:
        # from pinned memory the copy runs beside the computation that is still under way
        return batch.to(self.team.device, non_blocking=self.config.pin_memory)

    def _autocast(self) -> torch.autocast:
        precision = _AUTOCAST.get(self.config.amp)
        return torch.autocast(self.team.device.type, dtype=precision, enabled=precision is not None)

    def _averaged(self) -> AveragedModel:
        return AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(EMA_DECAY))


def compiled(model: nn.Module) -> nn.Module:
    """Return ``torch.compile(model)``: a module around the model, whose keys begin with ``_orig_mod.``."""
    module = torch.compile(model)
    assert isinstance(module, nn.Module)
    return module


def on_cpu(state: dict[str, Any]) -> dict[str, Any]:
    """Return a copy with every tensor on the CPU, none of them the model's own memory.

    Tensors that share it go on sharing.
    """
    copies: dict[tuple[int, int], torch.Tensor] = {}
    return {key: _copied(value, copies) if isinstance(value, torch.Tensor) else value for key, value in state.items()}


def _copied(tensor: torch.Tensor, copies: dict[tuple[int, int], torch.Tensor]) -> torch.Tensor:
    copy = tensor.detach().to("cpu", copy=True)
    return copies.setdefault((tensor.data_ptr(), tensor.numel()), copy) if tensor.numel() else copy


def _tally(
    loss: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor, replica_batches: tuple[int, ...]
) -> StepTally:
    correct = (logits.argmax(1) == labels).sum()
    return StepTally(precise(loss) * len(labels), correct, len(labels), replica_batches)


def _optimizer(config: RunConfig, model: nn.Module) -> torch.optim.Optimizer:
    if config.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=config.lr)
    return torch.optim.SGD(model.parameters(), lr=config.lr, momentum=config.momentum)


class SingleDevice(ModuleStrategy):
    """``single``: one process, one device. Every other strategy must compute the same as this one."""
