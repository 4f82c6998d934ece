"""``dp``: nn.DataParallel. One process scatters each batch over the devices and gathers the outputs on the first."""

from __future__ import annotations

import torch
from torch import nn

from ckptdoctor.trainer import devices
from ckptdoctor.trainer.strategies.module_strategy import ModuleStrategy
from ckptdoctor.trainer.strategies.replicas import data_parallel, watching


class DataParallel(ModuleStrategy):
    """The model inside a real ``nn.DataParallel``, whose keys therefore begin with ``module.``.

    Without a GPU ``nn.DataParallel`` runs the bare model on the whole batch; here the CPU has as many virtual replicas
    as the run asks for, and each sees its part.
    """

    prefix = "module."

    def wrap(self) -> nn.Module:
        """A DataParallel over the devices; over none of them on the CPU, where it is a name for the keys."""
        indices = [device.index for device in self.devices if device.type == "cuda"]
        return nn.DataParallel(self.model, indices or None)

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """One for each replica; the CPU as often as there are replicas."""
        return devices.replicas(self.config.device, self.config.world_size)

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...]]:
        """Logits of the whole batch, from all replicas."""
        with watching(self.model) as replica_batches:
            if self.team.device.type == "cuda":
                return self.wrapped(inputs), replica_batches()
            return data_parallel(self.model, inputs, self.devices), replica_batches()
