"""From the name of a strategy to the strategy."""

from __future__ import annotations

from torch import nn

from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.strategies.data_parallel import DataParallel, Functional
from ckptdoctor.trainer.strategies.manual import Manual
from ckptdoctor.trainer.strategies.module_strategy import ModuleStrategy, SingleDevice
from ckptdoctor.trainer.strategies.processes import Distributed, Exact, FullySharded
from ckptdoctor.trainer.team import Team

BY_NAME: dict[str, type[ModuleStrategy] | type[Manual]] = {
    "single": SingleDevice,
    "dp": DataParallel,
    "functional": Functional,
    "manual": Manual,
    "ddp": Distributed,
    "fsdp": FullySharded,
    "exact": Exact,
}


def make(config: RunConfig, team: Team, model: nn.Module) -> ModuleStrategy | Manual:
    """Return the strategy of a run around its network. Raises UsageError where the two do not go together."""
    return BY_NAME[config.strategy](config, team, model)
