"""``fsdp``: FSDP2. Each rank keeps a part of every parameter and gathers the whole only while it is needed."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim.swa_utils import AveragedModel

from ckptdoctor.trainer.strategies.module_strategy import ModuleStrategy, compiled, on_cpu
from ckptdoctor.trainer.strategies.strategy import State


class Sharded(ModuleStrategy):
    """``fully_shard`` on each part of the model and on the whole: parameters become DTensors, keys stay bare.

    A DTensor holds this rank's shard and knows the mesh of ranks that hold the others. ``full_tensor`` gathers it
    (every rank has to call it), ``distribute_tensor`` takes this rank's shard of a whole tensor.
    """

    def wrap(self) -> nn.Module:
        """Shard in place; the averaged model, a copy, in the same way."""
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
        """Logits, with the first rank's running stats on every rank: those are the ones that are saved."""
        for buffer in self.model.buffers():
            distributed.broadcast(buffer, src=0)
        return super().predict(inputs, ema)

    def state_dict(self) -> State:
        """Whole tensors, gathered from all ranks."""
        return on_cpu(_gathered(self.model.state_dict()))

    def wrapped_state_dict(self) -> State:
        """The same; FSDP2 puts nothing before the keys."""
        return on_cpu(_gathered(self.wrapped.state_dict()))

    def ema_state_dict(self) -> State | None:
        """The averaged model's, gathered."""
        return None if self.ema is None else on_cpu(_gathered(self.ema.state_dict()))

    def optimizer_state_dict(self) -> dict[str, Any]:
        """As on one device: every slot of every parameter, gathered."""
        state: dict[str, Any] = self.optimizer.state_dict()
        return {**state, "state": {index: on_cpu(_gathered(slots)) for index, slots in state["state"].items()}}

    def load(self, weights: State, optimizer: dict[str, Any], ema: State | None = None) -> None:
        """Each rank takes its shard of every tensor."""
        self.model.load_state_dict(_sharded(weights, self.model.state_dict()))
        parameters = list(self.model.parameters())
        slots = {
            index: _sharded(slot, dict.fromkeys(slot, parameters[index])) for index, slot in optimizer["state"].items()
        }
        self.optimizer.load_state_dict({**optimizer, "state": slots})
        if self.ema is not None and ema is not None:
            self.ema.load_state_dict(_sharded(ema, self.ema.state_dict()))


def _gathered(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value.full_tensor() if isinstance(value, DTensor) else value for key, value in state.items()}


def _sharded(state: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """Tensors with the shape of a DTensor in ``like``, distributed as that one is; the rest as it is."""
    return {key: _shard(value, like[key]) if key in like else value for key, value in state.items()}


def _shard(value: Any, like: Any) -> Any:
    if not isinstance(like, DTensor) or not isinstance(value, torch.Tensor) or value.shape != like.shape:
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)
