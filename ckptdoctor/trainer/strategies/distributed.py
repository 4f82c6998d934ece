"""``ddp``: DistributedDataParallel. One process per device; gradients are averaged while backward is still running."""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ckptdoctor.trainer.strategies.module_strategy import ModuleStrategy, compiled


class Distributed(ModuleStrategy):
    """The model inside DDP: each rank computes the mean gradient of its share, the all-reduce gives the mean of means.

    As every rank has equally many images, that is the mean over the global batch. DDP also sends the first rank's
    buffers (batch norm) to the others before each forward, so the first rank's checkpoint holds all there is.
    """

    prefix = "module."

    def wrap(self) -> nn.Module:
        """DDP first, compile around it: the order that lets torch cut the graph at DDP's buckets."""
        # device_ids must be None on the CPU, and names the one GPU of this process otherwise
        ids = [self.team.device.index] if self.team.device.type == "cuda" else None
        wrapped = DistributedDataParallel(self.model, device_ids=ids)
        if not self.config.compile:
            return wrapped
        self.prefix = "_orig_mod.module."
        return compiled(wrapped)
