"""``plain``: ``torch.save(model.state_dict())`` of the bare model, what every tutorial asks for."""

from __future__ import annotations

from pathlib import Path

import torch

from ckptdoctor.trainer.snapshot.collect import Collected
from ckptdoctor.trainer.snapshot.styles.style import Style
from ckptdoctor.trainer.strategies.strategy import Strategy


def _write(path: Path, collected: Collected, _: Strategy) -> None:
    torch.save(collected.weights, path)


PLAIN = Style("plain", "model.pt", "torch zip", _write)
