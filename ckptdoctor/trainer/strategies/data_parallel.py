"""``dp`` and ``functional``: data parallelism inside one process, by ``nn.DataParallel`` and by function calls.

A batch is scattered over the devices, a replica runs on each part, and the outputs are gathered on the first.
``torch.nn.parallel`` does this for GPUs and refuses the CPU. Here the CPU has virtual replicas with the same meaning:
each sees its own part of the batch through its own copy of the weights, one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from operator import attrgetter

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.parallel import data_parallel as torch_data_parallel

from ckptdoctor.noun import replace
from ckptdoctor.trainer import devices
from ckptdoctor.trainer.strategies.module_strategy import ModuleStrategy
from ckptdoctor.trainer.strategies.show_work import GradientShown, first_step
from ckptdoctor.trainer.strategies.strategy import StepTally

Device = torch.device


def scatter(batch: torch.Tensor, devices: Sequence[Device]) -> list[torch.Tensor]:
    """Return one contiguous part of the batch for each device, as ``torch.nn.parallel.scatter`` would deal them."""
    return [part.to(device) for part, device in zip(batch.chunk(len(devices)), devices, strict=False)]


def replicate(module: nn.Module, count: int) -> list[dict[str, torch.Tensor]]:
    """Return the weights and buffers of ``count`` replicas on one device.

    They are cloned: ``.to(device)`` would give the same tensors again, and replicas that share memory destroy each
    other's training. ``clone`` is differentiable, so the gradients of all replicas add up in the module's own
    parameters. As in ``nn.DataParallel``, the first replica keeps the module's own buffers: what it counts is what
    stays, and what the others count is lost.
    """
    replicas = []
    for replica in range(count):
        state = {name: parameter.clone() for name, parameter in module.named_parameters()}
        if replica > 0:
            state |= {name: buffer.clone() for name, buffer in module.named_buffers()}
        replicas.append(state)
    return replicas


def gather(outputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the outputs of all replicas as one batch, on the device of the first."""
    return torch.cat([output.to(outputs[0].device) for output in outputs])


def data_parallel(module: nn.Module, batch: torch.Tensor, devices: Sequence[Device]) -> torch.Tensor:
    """Compute ``module(batch)`` from one replica for each device.

    It is ``torch.nn.parallel.data_parallel``, also on the CPU.
    """
    if devices[0].type == "cuda":
        output: torch.Tensor = torch_data_parallel(module, batch, [device.index for device in devices])
        return output
    parts = scatter(batch, devices)
    replicas = replicate(module, len(parts))
    return gather([functional_call(module, state, (part,)) for state, part in zip(replicas, parts, strict=True)])


@contextmanager
def watching(module: nn.Module) -> Iterator[Callable[[], tuple[int, ...]]]:
    """Inside this block the batch that each replica of ``module`` really sees is counted; called, it gives the counts.

    A hook rather than arithmetic: it runs where the replica runs, whichever machinery made it.
    """
    seen: list[tuple[int, int]] = []

    def note(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        seen.append((inputs[0].device.index or 0, len(inputs[0])))

    hook = module.register_forward_pre_hook(note)
    try:
        yield lambda: tuple(images for _, images in sorted(seen, key=lambda each: each[0]))
    finally:
        hook.remove()


@contextmanager
def watching_gradients(module: nn.Module, parameter: str) -> Iterator[Callable[[], list[torch.Tensor]]]:
    """Inside this block each replica's own gradient of a parameter is kept; called, it gives them in their order.

    The module has none of them: backward adds them up in the parameter of which the replicas have copies.
    """
    seen: list[tuple[int, int, torch.Tensor]] = []

    def note(replica: nn.Module, _: tuple[torch.Tensor, ...]) -> None:
        weight = attrgetter(parameter)(replica)
        place, number = weight.device.index or 0, next(numbers)
        weight.register_hook(lambda gradient: seen.append((place, number, gradient.detach().clone())))

    numbers = count()
    hook = module.register_forward_pre_hook(note)
    try:
        yield lambda: [gradient for _, _, gradient in sorted(seen, key=lambda each: each[:2])]
    finally:
        hook.remove()


class DataParallel(ModuleStrategy):
    """The model inside a real ``nn.DataParallel``, whose keys therefore begin with ``module.``.

    Without a GPU ``nn.DataParallel`` runs the bare model on the whole batch; here the CPU has as many virtual replicas
    as the run asks for, and each sees its part.
    """

    prefix = "module."
    _has_shown_work = False

    def step(self, inputs: torch.Tensor, labels: torch.Tensor) -> StepTally:
        """Return the same as on one device; the first step is watched where its work is to be shown."""
        if self._has_shown_work or not self.config.show_work:
            return super().step(inputs, labels)
        self._has_shown_work = True
        name, parameter = next(self.model.named_parameters())
        scale = 1.0 if self.scaler is None else self.scaler.get_scale()
        with watching_gradients(self.model, name) as gradients:
            tally = super().step(inputs, labels)
        parts = list(zip(scatter(inputs, self.devices), scatter(labels, self.devices), strict=True))
        assert parameter.grad is not None
        stages = (
            GradientShown("before they are summed, each replica's part", [each / scale for each in gradients()]),
            GradientShown("after: backward has added them up where the module is", [parameter.grad]),
        )
        update = "update: the optimizer steps once, and the next step makes new replicas"
        return replace(tally, work=first_step(parts, name, stages, update))

    def wrap(self) -> nn.Module:
        """Return a DataParallel over the devices; over none of them on the CPU, where it is a name for the keys."""
        indices = [device.index for device in self.devices if device.type == "cuda"]
        return nn.DataParallel(self.model, indices or None)

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """One for each replica; the CPU as often as there are replicas."""
        return devices.replicas(self.config.device, self.config.world_size)

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...]]:
        """Return logits of the whole batch, from all replicas."""
        with watching(self.model) as replica_batches:
            if self.team.device.type == "cuda":
                return self.wrapped(inputs), replica_batches()
            return data_parallel(self.model, inputs, self.devices), replica_batches()


class Functional(ModuleStrategy):
    """Features and classifier are scattered and gathered apart. No wrapper is left behind: the keys are bare."""

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """One for each replica; the CPU as often as there are replicas."""
        return devices.replicas(self.config.device, self.config.world_size)

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...]]:
        """Return logits of the whole batch.

        It goes through all replicas of the features, then through those of the classifier.
        """
        features, classifier = self.model.get_submodule("features"), self.model.get_submodule("classifier")
        with watching(features) as replica_batches:
            hidden = data_parallel(features, inputs, self.devices)
        return data_parallel(classifier, hidden.flatten(1), self.devices), replica_batches()
