"""Which files a run writes."""

from __future__ import annotations

from ckptdoctor.trainer.config import Config
from ckptdoctor.trainer.snapshot.styles.averaged import AVERAGED
from ckptdoctor.trainer.snapshot.styles.legacy import LEGACY
from ckptdoctor.trainer.snapshot.styles.plain import PLAIN
from ckptdoctor.trainer.snapshot.styles.safetensors import SAFETENSORS
from ckptdoctor.trainer.snapshot.styles.style import Style
from ckptdoctor.trainer.snapshot.styles.whole import WHOLE
from ckptdoctor.trainer.snapshot.styles.wrapped import WRAPPED

BY_NAME = {style.name: style for style in (PLAIN, WRAPPED, WHOLE, LEGACY, SAFETENSORS)}
"""The styles that are one file, which the first rank writes; ``dcp`` is a folder, and all ranks write it."""


def styles_of(config: Config) -> list[Style]:
    """The files of a checkpoint of this run: those asked for, in the order of the table, and the average if any."""
    chosen = [style for name, style in BY_NAME.items() if name in config.save]
    return [*chosen, AVERAGED] if config.ema else chosen
