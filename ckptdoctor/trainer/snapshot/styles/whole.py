"""``whole``: ``torch.save(model)``, the model object itself, which only loads where its classes can be imported.

What is pickled is what a tutorial has in hand: the ``nn.DataParallel`` around the network, where there is one, and the
bare network otherwise. DDP is not pickled: nobody who loads it is in the process group that it needs; nor is FSDP,
which refuses.
"""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import nn

from ckptdoctor.trainer.snapshot.collect import Collected
from ckptdoctor.trainer.snapshot.styles.style import Style
from ckptdoctor.trainer.strategies.strategy import Strategy


def _write(path: Path, collected: Collected, strategy: Strategy) -> None:
    if isinstance(strategy.wrapped, nn.DataParallel):
        torch.save(copy.deepcopy(strategy.wrapped).cpu(), path)
        return
    assert strategy.blank is not None  # refused before training began
    strategy.blank.load_state_dict(collected.weights)
    torch.save(strategy.blank, path)


WHOLE = Style("whole", "whole.pt", "torch zip", _write)
