"""``manual``: data parallelism from bare tensors, with every line of it in sight. No module, no optimizer object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from ckptdoctor.trainer import devices
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.networks import lenet
from ckptdoctor.trainer.strategies.module_strategy import on_cpu
from ckptdoctor.trainer.strategies.show_work import GradientShown, first_step
from ckptdoctor.trainer.strategies.strategy import StateTensors, StepTally, Strategy, precise
from ckptdoctor.trainer.team import Team

Tensors = list[torch.Tensor]


def get_params(parameters: Sequence[torch.Tensor], device: torch.device) -> Tensors:
    """Return copies of the parameters on ``device`` that collect gradients.

    Copies even when they are there already: replicas on one device must not share memory.
    """
    return [parameter.detach().to(device, copy=True).requires_grad_() for parameter in parameters]


def split_batch(inputs: torch.Tensor, labels: torch.Tensor, where: Sequence[torch.device]) -> list[Tensors]:
    """Return the part of inputs and labels that each device works on."""
    parts = zip(inputs.chunk(len(where)), labels.chunk(len(where)), where, strict=True)
    return [[some.to(device), of_them.to(device)] for some, of_them, device in parts]


def allreduce(tensors: Tensors) -> None:
    """Replace each tensor by the sum of all: summed up on the first device, then sent back to every other one."""
    for tensor in tensors[1:]:
        tensors[0][:] += tensor.to(tensors[0].device)
    for tensor in tensors[1:]:
        tensor[:] = tensors[0].to(tensor.device)


def sgd(parameters: Tensors, momenta: Tensors, lr: float, momentum: float, batch_size: int) -> None:
    """Take one step of gradient descent: gradients are sums over ``batch_size`` images, and divided by it."""
    for parameter, average in zip(parameters, momenta, strict=True):
        assert parameter.grad is not None
        average.mul_(momentum).add_(parameter.grad / batch_size)
        parameter.add_(average, alpha=-lr)
        parameter.grad = None


class Manual(Strategy):
    """A LeNet as eight tensors on every device, kept equal by summing their gradients."""

    model = None
    wrapped = None

    def __init__(self, config: RunConfig, team: Team, model: nn.Module) -> None:
        """Start from the weights of ``model``, so that every strategy starts from the same."""
        self.config, self.team = config, team
        self.blank = None
        weights = model.state_dict()
        self._keys = list(weights)
        self.parameter_count = sum(weight.numel() for weight in weights.values())
        self._lr = config.lr
        self._shows_work = config.show_work
        self._spread(list(weights.values()), [torch.zeros_like(weight) for weight in weights.values()])

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """One for each replica; the CPU as often as there are replicas."""
        return devices.replicas(self.config.device, self.config.world_size)

    def step(self, inputs: torch.Tensor, labels: torch.Tensor) -> StepTally:
        """Split the batch, compute each replica's gradients, sum them, and let every replica take the same step."""
        parts = split_batch(inputs, labels, self.devices)
        logits = [lenet(part[0], replica) for part, replica in zip(parts, self._replicas, strict=True)]
        losses = [cross_entropy(each, part[1], reduction="sum") for each, part in zip(logits, parts, strict=True)]
        for loss in losses:
            loss.backward()
        local = self._gradients() if self._shows_work else []
        with torch.no_grad():
            for same in zip(*self._replicas, strict=True):
                allreduce([parameter.grad for parameter in same if parameter.grad is not None])
            summed = self._gradients() if self._shows_work else []
            for replica, momenta in zip(self._replicas, self._momenta, strict=True):
                sgd(replica, momenta, self._lr, self.config.momentum, len(inputs))
        first = self.devices[0]
        loss = torch.stack([precise(each.detach()).to(first) for each in losses]).sum()
        right = [(each.argmax(1) == part[1]).sum().to(first) for each, part in zip(logits, parts, strict=True)]
        work = self._work(parts, local, summed) if self._shows_work else ()
        return StepTally(loss, torch.stack(right).sum(), len(inputs), tuple(len(part[0]) for part in parts), work)

    def _gradients(self) -> Tensors:
        """Return copies of every replica's gradient of the first parameter."""
        return [replica[0].grad.clone() for replica in self._replicas if replica[0].grad is not None]

    def _work(self, parts: Sequence[Tensors], local: Tensors, summed: Tensors) -> tuple[str, ...]:
        self._shows_work = False
        images = sum(len(part[0]) for part in parts)
        stages = (
            GradientShown("before the all-reduce, summed over each replica's images", local),
            GradientShown("after the all-reduce, the sum of all", summed),
        )
        update = f"update: every replica subtracts lr {self._lr:g} x gradient / {images}, so all stay equal"
        return first_step(parts, self._keys[0], stages, update)

    def predict(self, inputs: torch.Tensor, ema: bool = False) -> torch.Tensor:
        """Return logits from the first replica: all are equal."""
        with torch.no_grad():
            return lenet(inputs.to(self.devices[0]), self._replicas[0])

    def set_learning_rate(self, lr: float) -> None:
        """Keep the number, which is all there is."""
        self._lr = lr

    def state_dict(self) -> StateTensors:
        """Return the first replica's tensors, under the keys of the module LeNet."""
        return on_cpu(dict(zip(self._keys, self._replicas[0], strict=True)))

    def wrapped_state_dict(self) -> StateTensors:
        """Return the same: nothing is wrapped."""
        return self.state_dict()

    def optimizer_state_dict(self) -> dict[str, Any]:
        """Return the momenta as ``torch.optim.SGD`` would name them, so that any strategy can go on from here."""
        indices = range(len(self._keys))
        slots = {index: on_cpu({"momentum_buffer": self._momenta[0][index]}) for index in indices}
        like = torch.optim.SGD(self._replicas[0], lr=self._lr, momentum=self.config.momentum).state_dict()
        return {"state": slots, "param_groups": like["param_groups"]}

    def load(self, weights: StateTensors, optimizer: dict[str, Any], ema: StateTensors | None = None) -> None:
        """Load into every replica."""
        values = [weights[key] for key in self._keys]
        slots = [optimizer["state"].get(index, {}) for index in range(len(values))]
        momenta = [slot.get("momentum_buffer") for slot in slots]
        self._spread(values, [torch.zeros_like(v) if m is None else m for v, m in zip(values, momenta, strict=True)])

    def _spread(self, parameters: Tensors, momenta: Tensors) -> None:
        self._replicas = [get_params(parameters, device) for device in self.devices]
        self._momenta = [[each.to(device, copy=True) for each in momenta] for device in self.devices]
