"""``training.pt``: everything that a run needs to go on, as plain data and tensors.

Plain data, so that ``torch.load(path, weights_only=True)`` takes it: no class of this program is named in the file, and
it can be read after any of them has been renamed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ckptdoctor.trainer.config import Config
from ckptdoctor.trainer.snapshot.averaging import bared
from ckptdoctor.trainer.snapshot.collect import Collected
from ckptdoctor.trainer.snapshot.position import Position
from ckptdoctor.trainer.snapshot.tagging import saving_with_tag

KEYS = (
    "epoch",
    "step",
    "best_accuracy",
    "network",
    "strategy",
    "world_size",
    "config",
    "state_dict",
    "optimizer",
    "scheduler",
    "scaler",
    "ema",
    "rng",
)

# where a run was, not what it was: the same run elsewhere writes the same file
_ABOUT_THE_PLACE = ("out", "data_dir", "resume")


def contents(config: Config, position: Position, collected: Collected) -> dict[str, Any]:
    """What goes into the file, under KEYS."""
    return {
        "epoch": position.epoch,
        "step": position.step,
        "best_accuracy": float(position.best_accuracy),
        "network": config.network,
        "strategy": config.strategy,
        "world_size": config.world_size,
        "config": config_as_data(config),
        "state_dict": collected.weights,
        "optimizer": collected.optimizer,
        # all there is to a schedule that is computed from the epoch
        "scheduler": {"last_epoch": position.epoch, "base_lr": config.lr},
        "scaler": collected.scaler,
        "ema": None if collected.ema is None else bared(collected.ema),
        "rng": collected.rng,
    }


def write(path: Path, saved: dict[str, Any], tag: str) -> None:
    """Write the file, with weights and optimizer tagged as lying on ``tag``."""
    with saving_with_tag(tag, stays=_on_the_cpu(saved)):
        torch.save(saved, path)


def config_as_data(config: Config) -> dict[str, Any]:
    """The choices that make the run what it is, as plain data."""
    choices: dict[str, Any] = json.loads(config.to_json())
    return {name: value for name, value in choices.items() if name not in _ABOUT_THE_PLACE}


def _on_the_cpu(saved: dict[str, Any]) -> Iterator[torch.Tensor]:
    """What lies on the CPU in a run on a GPU as well: states of generators, and the optimizer's step counters."""
    for state in saved["rng"]:
        yield from (state["cpu"], *(state["cuda"] or ()), *(() if state["mps"] is None else (state["mps"],)))
    for slots in saved["optimizer"]["state"].values():
        # torch.optim.Adam and its kind keep "step" there unless they are capturable or fused
        yield from (value for name, value in slots.items() if name == "step" and isinstance(value, torch.Tensor))
