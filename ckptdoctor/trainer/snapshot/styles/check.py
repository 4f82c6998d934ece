"""Whether a run can be saved as it asks to be, said before it trains for hours."""

from __future__ import annotations

import importlib.util

from ckptdoctor.errors import UsageError
from ckptdoctor.trainer.config import SAVES, Config
from ckptdoctor.trainer.snapshot.tags import check_tag

_NO_WHOLE = {
    "manual": "it trains bare tensors, and there is no module to pickle",
}


def check_styles(config: Config) -> None:
    """Raise UsageError for a style that this run cannot write, or a device tag that nobody would write."""
    for name in config.save:
        if name not in SAVES:
            raise UsageError(f"--save {name} is no way of saving; there are {', '.join(SAVES)}.")
    if "whole" in config.save and config.strategy in _NO_WHOLE:
        reason = _NO_WHOLE[config.strategy]
        raise UsageError(f"--save whole goes with any strategy but {config.strategy}: {reason}; take --save plain.")
    if "safetensors" in config.save and importlib.util.find_spec("safetensors") is None:
        raise UsageError("--save safetensors needs the package of that name: pip install safetensors.")
    if config.tag_device is not None:
        check_tag(config.tag_device)
