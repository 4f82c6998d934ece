"""``ema``: ``torch.save(ema_model.state_dict())``, written beside the others by every run that averages.

The averaged model is a wrapper too: its keys begin with ``module.``, and a counter ``n_averaged`` stands before them.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ckptdoctor.trainer.snapshot.collect import Collected
from ckptdoctor.trainer.snapshot.styles.style import Style
from ckptdoctor.trainer.strategies.strategy import Strategy


def _write(path: Path, collected: Collected, _: Strategy) -> None:
    torch.save(collected.ema, path)


AVERAGED = Style("ema", "ema.pt", "torch zip", _write)
