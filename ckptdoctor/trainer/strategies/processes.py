"""``ddp``, ``fsdp`` and ``exact``: one process per device.

With DistributedDataParallel gradients are averaged while backward is still running. With FSDP2 each rank keeps a part
of every parameter and gathers the whole only while it is needed. ``exact`` gives the same bits
on any number of workers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from ckptdoctor.errors import TrainingError
from ckptdoctor.trainer.config import MICRO_SHARDS, RunConfig
from ckptdoctor.trainer.strategies.module_strategy import ModuleStrategy, compiled, on_cpu
from ckptdoctor.trainer.strategies.strategy import StateTensors, StepTally, precise
from ckptdoctor.trainer.team import Team


class Distributed(ModuleStrategy):
    """The model inside DDP: each rank computes the mean gradient of its share, the all-reduce gives the mean of means.

    As every rank has equally many images, that is the mean over the global batch. DDP also sends the first rank's
    buffers (batch norm) to the others before each forward, so the first rank's checkpoint holds all there is.
    """

    prefix = "module."

    def wrap(self) -> nn.Module:
        """Wrap in DDP first, compile around it: the order that lets torch cut the graph at DDP's buckets."""
        # device_ids must be None on the CPU, and names the one GPU of this process otherwise
        ids = [self.team.device.index] if self.team.device.type == "cuda" else None
        wrapped = DistributedDataParallel(self.model, device_ids=ids)
        if not self.config.compile:
            return wrapped
        self.prefix = "_orig_mod.module."
        return compiled(wrapped)


class FullySharded(ModuleStrategy):
    """``fully_shard`` on each part of the model and on the whole: parameters become DTensors, keys stay bare.

    A DTensor holds this rank's shard and knows the mesh of ranks that hold the others. ``full_tensor`` gathers it
    (every rank has to call it), ``distribute_tensor`` takes this rank's shard of a whole tensor.
    """

    def wrap(self) -> nn.Module:
        """Shard in place; the averaged model, a copy, in the same way."""
        _require_means(self.team)
        mesh = init_device_mesh(self.team.device.type, (self.team.world_size,))
        for model in (self.model, self.ema.module if isinstance(self.ema, AveragedModel) else None):
            if model is not None:
                for part in model.children():
                    if not isinstance(part, nn.ModuleList):  # has no forward that could gather its parameters
                        fully_shard(part, mesh=mesh)
                fully_shard(model, mesh=mesh)
        if not self.config.compile:
            return self.model
        self.prefix = "_orig_mod."
        return compiled(self.model)

    def predict(self, inputs: torch.Tensor, ema: bool = False) -> torch.Tensor:
        """Return logits, with the first rank's running stats on every rank: those are the ones that are saved."""
        for buffer in self.model.buffers():
            distributed.broadcast(buffer, src=0)
        return super().predict(inputs, ema)

    def state_dict(self) -> StateTensors:
        """Return whole tensors, gathered from all ranks."""
        return on_cpu(_gathered(self.model.state_dict()))

    def wrapped_state_dict(self) -> StateTensors:
        """Return the same; FSDP2 puts nothing before the keys."""
        return on_cpu(_gathered(self.wrapped.state_dict()))

    def ema_state_dict(self) -> StateTensors | None:
        """Return the averaged model's, gathered."""
        return None if self.ema is None else on_cpu(_gathered(self.ema.state_dict()))

    def optimizer_state_dict(self) -> dict[str, Any]:
        """Return it as on one device: every slot of every parameter, gathered."""
        state: dict[str, Any] = self.optimizer.state_dict()
        return {**state, "state": {index: on_cpu(_gathered(slots)) for index, slots in state["state"].items()}}

    def load(self, weights: StateTensors, optimizer: dict[str, Any], ema: StateTensors | None = None) -> None:
        """Each rank takes its shard of every tensor."""
        self.model.load_state_dict(_sharded(weights, self.model.state_dict()))
        parameters = list(self.model.parameters())
        slots = {
            index: _sharded(slot, dict.fromkeys(slot, parameters[index])) for index, slot in optimizer["state"].items()
        }
        self.optimizer.load_state_dict({**optimizer, "state": slots})
        if self.ema is not None and ema is not None:
            self.ema.load_state_dict(_sharded(ema, self.ema.state_dict()))


def _require_means(team: Team) -> None:
    """Raise TrainingError where FSDP2 trains something else on CPUs: what reduces gradients there adds them up.

    torch 2.7 does so, and 2.6 fails: its streams of a CPU record no events.
    """
    if team.device.type != "cpu":
        return
    mean = torch.zeros(1)
    ranks = torch.full((team.world_size,), float(team.rank))
    distributed.reduce_scatter_tensor(mean, ranks, op=distributed.ReduceOp.AVG)
    if mean.item() != (team.world_size - 1) / 2 or not hasattr(torch.cpu.Stream, "record_event"):
        raise TrainingError(
            f"torch {torch.__version__} does not average the gradients of fsdp on CPUs: upgrade torch, or use ddp."
        )


def _gathered(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value.full_tensor() if isinstance(value, DTensor) else value for key, value in state.items()}


def _sharded(state: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """Return tensors with the shape of a DTensor in ``like``, distributed as that one is; the rest as it is."""
    return {key: _shard(value, like[key]) if key in like else value for key, value in state.items()}


def _shard(value: Any, like: Any) -> Any:
    if not isinstance(like, DTensor) or not isinstance(value, torch.Tensor) or value.shape != like.shape:
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)


class Exact(ModuleStrategy):
    """Micro-shards, summed pairwise. On the CPU each process uses one thread: more would split sums as they please.

    Addition of floating-point numbers depends on its order, so the sum over a batch differs in its last bits with the
    number of workers. Here every batch is cut into eight micro-shards, always; each worker computes the gradients of
    those it is dealt, everybody learns all eight, and everybody adds them up pairwise in the same order. What a single
    worker computes is then, bit for bit, what eight do; and a run may stop on two and go on with four.
    """

    def __init__(self, config: RunConfig, team: Team, model: nn.Module) -> None:
        """Refuse networks with batch norm, whose statistics depend on who sees which images."""
        super().__init__(config, team, model)
        self._epoch = self._step = 0

    def begin(self, epoch: int, step: int) -> None:
        """Dropout is seeded by place in the run, not by what a process drew before."""
        self._epoch, self._step = epoch, step

    def step(self, inputs: torch.Tensor, labels: torch.Tensor) -> StepTally:
        """Take gradients of each micro-shard apart, all of them from everybody, one sum, one update."""
        inputs, labels = self._moved(inputs), self._moved(labels)
        self.wrapped.train()
        own = MICRO_SHARDS // self.team.world_size
        gradients, losses, correct = [], [], []
        for number, (some, of_them) in enumerate(zip(inputs.chunk(own), labels.chunk(own), strict=True)):
            self._seed(self.team.rank * own + number)
            logits = self.model(some)
            loss = cross_entropy(logits, of_them, reduction="sum")
            gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(self.model.parameters()))]))
            losses.append(precise(loss.detach()))
            correct.append((logits.detach().argmax(1) == of_them).sum())
        everybody = self._from_all_ranks(torch.stack(gradients))
        self._update(pairwise_sum(list(everybody)) / (len(labels) * self.team.world_size))
        self._step += 1
        return StepTally(torch.stack(losses).sum(), torch.stack(correct).sum(), len(labels), (len(labels),))

    def _seed(self, shard: int) -> None:
        place = (self._epoch << 24) + (self._step << 4) + shard
        torch.manual_seed((self.config.seed * 1_000_003 + place) % 2**63)

    def _from_all_ranks(self, gradients: torch.Tensor) -> torch.Tensor:
        """Return (own micro-shards, parameters) of this rank → (8, parameters), in the order of the batch."""
        if not distributed.is_initialized():
            return gradients
        everybody = [torch.empty_like(gradients) for _ in range(self.team.world_size)]
        distributed.all_gather(everybody, gradients)
        return torch.cat(everybody)

    def _update(self, gradient: torch.Tensor) -> None:
        parameters = list(self.model.parameters())
        parts = gradient.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.reshape(parameter.shape)
        self.optimizer.step()
        self._average()


def pairwise_sum(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the sum of tensors as a tree: (((a+b) + (c+d)) + …).

    The order of additions depends on their number alone.
    """
    while len(tensors) > 1:
        pairs = [a + b for a, b in zip(tensors[::2], tensors[1::2], strict=False)]
        tensors = pairs + tensors[2 * len(pairs) :]
    return tensors[0]
