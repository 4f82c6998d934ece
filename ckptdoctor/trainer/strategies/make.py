"""From the name of a strategy to the strategy."""

from __future__ import annotations

from torch import nn

from ckptdoctor.trainer.config import Config
from ckptdoctor.trainer.strategies.data_parallel import DataParallel
from ckptdoctor.trainer.strategies.distributed import Distributed
from ckptdoctor.trainer.strategies.exact import Exact
from ckptdoctor.trainer.strategies.functional import Functional
from ckptdoctor.trainer.strategies.manual import Manual
from ckptdoctor.trainer.strategies.module_strategy import ModuleStrategy
from ckptdoctor.trainer.strategies.sharded import Sharded
from ckptdoctor.trainer.strategies.single import Single
from ckptdoctor.trainer.team import Team

BY_NAME: dict[str, type[ModuleStrategy] | type[Manual]] = {
    "single": Single,
    "dp": DataParallel,
    "functional": Functional,
    "manual": Manual,
    "ddp": Distributed,
    "fsdp": Sharded,
    "exact": Exact,
}


def make(config: Config, team: Team, model: nn.Module) -> ModuleStrategy | Manual:
    """The strategy of a run around its network. Raises UsageError where the two do not go together."""
    return BY_NAME[config.strategy](config, team, model)
