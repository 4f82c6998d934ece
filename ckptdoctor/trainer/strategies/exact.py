"""``exact``: the same bits on any number of workers.

Addition of floating-point numbers depends on its order, so the sum over a batch differs in its last bits with the
number of workers. Here every batch is cut into eight micro-shards, always; each worker computes the gradients of those
it is dealt, everybody learns all eight, and everybody adds them up pairwise in the same order. What a single worker
computes is then, bit for bit, what eight do; and a run may stop on two and go on with four.
"""

from __future__ import annotations

import torch
from torch import distributed, nn
from torch.nn.functional import cross_entropy

from ckptdoctor.trainer.config import MICRO_SHARDS, Config
from ckptdoctor.trainer.strategies.module_strategy import ModuleStrategy
from ckptdoctor.trainer.strategies.strategy import Tally, precise
from ckptdoctor.trainer.team import Team


class Exact(ModuleStrategy):
    """Micro-shards, summed pairwise. On the CPU each process uses one thread: more would split sums as they please."""

    def __init__(self, config: Config, team: Team, model: nn.Module) -> None:
        """Not for networks with batch norm, whose statistics depend on who sees which images."""
        super().__init__(config, team, model)
        self._epoch = self._step = 0

    def begin(self, epoch: int, step: int) -> None:
        """Dropout is seeded by place in the run, not by what a process drew before."""
        self._epoch, self._step = epoch, step

    def step(self, inputs: torch.Tensor, labels: torch.Tensor) -> Tally:
        """Gradients of each micro-shard apart, all of them from everybody, one sum, one update."""
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
        return Tally(torch.stack(losses).sum(), torch.stack(correct).sum(), len(labels), (len(labels),))

    def _seed(self, shard: int) -> None:
        place = (self._epoch << 24) + (self._step << 4) + shard
        torch.manual_seed((self.config.seed * 1_000_003 + place) % 2**63)

    def _from_all_ranks(self, gradients: torch.Tensor) -> torch.Tensor:
        """(own micro-shards, parameters) of this rank → (8, parameters), in the order of the batch."""
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
    """The sum of tensors as a tree: (((a+b) + (c+d)) + …). The order of additions depends on their number alone."""
    while len(tensors) > 1:
        pairs = [a + b for a, b in zip(tensors[::2], tensors[1::2], strict=False)]
        tensors = pairs + tensors[2 * len(pairs) :]
    return tensors[0]
