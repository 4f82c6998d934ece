"""Everything that a checkpoint is made of, brought together from all ranks."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ckptdoctor.trainer.snapshot import seeding
from ckptdoctor.trainer.strategies.strategy import StateTensors, Strategy
from ckptdoctor.trainer.team import Team


@dataclass(frozen=True)
class Collected:
    """The state of a run, whole and on the CPU."""

    weights: StateTensors
    """Under the bare keys of the model."""
    wrapped: StateTensors
    """As the wrapped model names them."""
    optimizer: dict[str, Any]
    scaler: dict[str, Any] | None
    ema: StateTensors | None
    """As the averaged model names them: ``n_averaged``, and the weights under ``module.``."""
    rng: list[seeding.RandomState]
    """Of every rank."""


def collect(strategy: Strategy, team: Team, rng: seeding.RandomState | None = None) -> Collected:
    """Bring it all together. Collective: where parameters are sharded, each rank has a part of every tensor.

    ``rng`` is the state of this rank's generators, where it was captured before; otherwise it is what they are now.
    """
    own = seeding.capture(strategy.devices) if rng is None else rng
    ema = strategy.ema_state_dict()
    return Collected(
        weights=as_torch_saves(strategy.state_dict(), strategy.model),
        wrapped=as_torch_saves(strategy.wrapped_state_dict(), strategy.wrapped),
        optimizer=strategy.optimizer_state_dict(),
        scaler=None if strategy.scaler is None else strategy.scaler.state_dict(),
        ema=None if ema is None else as_torch_saves(ema, strategy.ema),
        rng=seeding.gather(own, team),
    )


def as_torch_saves(state: StateTensors, module: nn.Module | None) -> StateTensors:
    """Return the same tensors in the kind of dict that ``module.state_dict()`` gives, versions of its parts and all.

    That is an OrderedDict with an attribute ``_metadata`` (torch.nn.Module.state_dict), which goes into the file. Bare
    tensors without a module have none.
    """
    if module is None:
        return state
    made: OrderedDict[str, torch.Tensor] = OrderedDict(state)
    like = module.state_dict(keep_vars=True)
    made._metadata = like._metadata  # type: ignore[attr-defined]
    return made
