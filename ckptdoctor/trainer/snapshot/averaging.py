"""The averaged model inside ``training.pt``: under bare keys, so that the file holds weights and not a wrapper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ckptdoctor.trainer.strategies.strategy import State

COUNTER = "n_averaged"
"""The buffer in which torch.optim.swa_utils.AveragedModel counts its updates."""
WRAPPER = "module."
"""What AveragedModel puts before the keys of the model that it holds."""


def bared(ema: State) -> dict[str, Any]:
    """``{"n_averaged": 7, "state_dict": {…}}`` from the state dict of an AveragedModel."""
    weights = {key.removeprefix(WRAPPER): value for key, value in ema.items() if key != COUNTER}
    return {COUNTER: int(ema[COUNTER]), "state_dict": weights}


def as_averaged_model(saved: Mapping[str, Any]) -> State:
    """The state dict of an AveragedModel from what ``bared`` gave."""
    counter = torch.tensor(saved[COUNTER], dtype=torch.long)
    return {COUNTER: counter, **{WRAPPER + key: value for key, value in saved["state_dict"].items()}}
