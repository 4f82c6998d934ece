"""``wrapped``: ``torch.save(net.state_dict())`` where ``net`` is the wrapper: every key begins with its prefix."""

from __future__ import annotations

from pathlib import Path

import torch

from ckptdoctor.trainer.snapshot.collect import Collected
from ckptdoctor.trainer.snapshot.styles.style import Style
from ckptdoctor.trainer.strategies.strategy import Strategy


def _write(path: Path, collected: Collected, _: Strategy) -> None:
    torch.save(collected.wrapped, path)


WRAPPED = Style("wrapped", "wrapped.pt", "torch zip", _write, wrapped=True)
