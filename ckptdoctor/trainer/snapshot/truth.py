"""``truth.json``: how a checkpoint was made, and what is right and wrong with each file of it.

The trainer knows this because it did it. ``ckptdoctor check`` has to find it out from the bytes, and the two are held
against each other: what stands here comes from nothing that ``check`` uses.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ckptdoctor.trainer.config import Config
from ckptdoctor.trainer.snapshot import trying
from ckptdoctor.trainer.snapshot.averaging import WRAPPER
from ckptdoctor.trainer.snapshot.collect import Collected
from ckptdoctor.trainer.snapshot.folders import TRAINING, TRUTH
from ckptdoctor.trainer.snapshot.position import Position
from ckptdoctor.trainer.snapshot.styles import dcp
from ckptdoctor.trainer.snapshot.styles.registry import styles_of
from ckptdoctor.trainer.snapshot.styles.style import Style
from ckptdoctor.trainer.snapshot.symptoms import codes, repair
from ckptdoctor.trainer.strategies.strategy import State, Strategy

# not part of what was asked of the network: where it happened, and what only tests choose
_NOT_IN_COMMAND = ("network", "out", "data_dir", "resume", "timeout", "dtype", "width", "images")


@dataclass(frozen=True)
class Making:
    """What the files of one checkpoint were made from."""

    folder: Path
    config: Config
    strategy: Strategy
    position: Position
    collected: Collected
    tag: str
    """The device tag in the files that have tags."""

    @property
    def bare(self) -> nn.Module | State:
        """A bare model to try a file on, or the weights where there is no module."""
        return self.collected.weights if self.strategy.blank is None else self.strategy.blank


def write(making: Making) -> None:
    """Write the truth about a folder into it, last of all its files."""
    text = json.dumps({"made": _made(making), "files": _files(making)}, indent=2, ensure_ascii=False)
    (making.folder / TRUTH).write_text(text + "\n", encoding="utf-8")


def command(config: Config) -> str:
    """The command line that makes such a run; options that have their default are left out."""
    words = ["ckptdoctor", "train", config.network]
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name in _NOT_IN_COMMAND or value is None or value is False:
            continue
        if value != field.default or field.name == "device":  # "auto" would choose another one elsewhere
            option = "--" + field.name.replace("_", "-")
            for one in value if isinstance(value, tuple) else (value,):
                words += [option] if one is True else [option, str(one)]
    return " ".join(words)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    summed = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            summed.update(block)
    return summed.hexdigest()


def _made(making: Making) -> dict[str, Any]:
    config, position = making.config, making.position
    return {
        "command": command(config),
        "network": config.network,
        "strategy": config.strategy,
        "world_size": config.world_size,
        "device": config.device,
        "data": config.data,
        "epoch": position.epoch,
        "step": position.step,
        "best_accuracy": position.best_accuracy,
        "torch": str(torch.__version__),
        "seed": config.seed,
        "dtype": config.dtype,
        "compile": config.compile,
        "amp": config.amp,
        "ema": config.ema,
        "tag": making.tag,
    }


def _files(making: Making) -> dict[str, Any]:
    files = {TRAINING: _training(making)}
    for style in styles_of(making.config):
        files[style.file] = _of_style(making, style)
    if dcp.FOLDER in making.config.save:
        files[dcp.FOLDER] = _dcp(making)
    return files


def _training(making: Making) -> dict[str, Any]:
    path = making.folder / TRAINING
    return {
        "style": "training",
        "format": "torch zip",
        "tag": making.tag,
        **_contents(making.collected.weights, prefix=""),
        "sha256": digest(path),
        "loads": trying.attempt(path, making.bare, inside="state_dict"),
        "loads_on_cpu": trying.attempt(path, making.bare, inside="state_dict", on_cpu=True),
        "check": codes("training", "", making.tag, averaged=making.collected.ema is not None),
        "repair": repair(TRAINING, "training", "", making.tag),
    }


def _of_style(making: Making, style: Style) -> dict[str, Any]:
    path = making.folder / style.file
    prefix = making.strategy.prefix if style.wrapped else WRAPPER if style.name == "ema" else ""
    tag = making.tag if style.tagged else "cpu"
    return {
        "style": style.name,
        "format": style.format,
        "tag": making.tag if style.tagged else None,
        **_contents(making.collected.weights, prefix),
        "sha256": digest(path),
        **_loading(path, making.bare, style),
        "check": codes(style.name, prefix, tag),
        "repair": repair(style.file, style.name, prefix, tag),
    }


def _loading(path: Path, bare: nn.Module | State, style: Style) -> dict[str, str]:
    if not style.tagged:
        from safetensors.torch import load_file

        said = trying.fits(load_file(path), bare)
        return {"loads": said, "loads_on_cpu": said}
    return {"loads": trying.attempt(path, bare), "loads_on_cpu": trying.attempt(path, bare, on_cpu=True)}


def _dcp(making: Making) -> dict[str, Any]:
    folder = making.folder / dcp.FOLDER
    said = trying.fits(dcp.read(folder, making.collected.weights), making.bare)
    return {
        "style": "dcp",
        "format": "torch distributed checkpoint",
        "tag": None,  # each rank moves its tensors to the CPU, and the metadata names no device
        **_contents(making.collected.weights, prefix=""),
        "sha256": {path.name: digest(path) for path in sorted(folder.iterdir())},
        "loads": said,
        "loads_on_cpu": said,
        "check": ["X809"],
        "repair": "python -m torch.distributed.checkpoint.format_utils dcp_to_torch dcp model.pt",
    }


def _contents(weights: State, prefix: str) -> dict[str, Any]:
    """The bare keys, what stands before each of them in the file, and the shape and dtype of each."""
    return {
        "keys": list(weights),
        "prefix": prefix,
        "shapes": {key: list(tensor.shape) for key, tensor in weights.items()},
        "dtypes": {key: str(tensor.dtype).removeprefix("torch.") for key, tensor in weights.items()},
    }
