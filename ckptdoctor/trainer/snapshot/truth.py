"""``truth.json``: how a checkpoint was made, and what is right and wrong with each file of it.

The trainer knows this because it did it. ``ckptdoctor check`` has to find it out from the bytes, and the two are
compared: nothing in here comes from what ``check`` uses.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ckptdoctor.trainer.checks import WITHOUT_STORAGE
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.snapshot import dcp
from ckptdoctor.trainer.snapshot.collect import Collected
from ckptdoctor.trainer.snapshot.folders import TRAINING, TRUTH, Position
from ckptdoctor.trainer.snapshot.styles import Style, styles_of
from ckptdoctor.trainer.snapshot.training import WRAPPER
from ckptdoctor.trainer.strategies.strategy import StateTensors, Strategy

# not part of what was asked of the network: where it happened, and what only tests choose
_NOT_IN_COMMAND = ("network", "out", "data_dir", "resume", "timeout", "dtype", "width", "images")


@dataclass(frozen=True)
class CheckpointMaking:
    """Everything that the files of one checkpoint were made from."""

    folder: Path
    config: RunConfig
    strategy: Strategy
    position: Position
    collected: Collected
    tag: str
    """The device tag in the files that have tags."""

    @property
    def bare(self) -> nn.Module | StateTensors:
        """A bare model to try a file on, or the weights where there is no module."""
        return self.collected.weights if self.strategy.blank is None else self.strategy.blank


def write(making: CheckpointMaking) -> None:
    """Write the truth about a folder into it, last of all its files."""
    text = json.dumps({"made": _made(making), "files": _files(making)}, indent=2, ensure_ascii=False)
    (making.folder / TRUTH).write_text(text + "\n", encoding="utf-8")


def command(config: RunConfig) -> str:
    """Return the command line that makes such a run; options that have their default are left out."""
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


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    summed = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            summed.update(block)
    return summed.hexdigest()


def _made(making: CheckpointMaking) -> dict[str, Any]:
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


def _files(making: CheckpointMaking) -> dict[str, Any]:
    files = {TRAINING: _training(making)}
    for style in styles_of(making.config):
        files[style.file] = _of_style(making, style)
    if dcp.FOLDER in making.config.save:
        files[dcp.FOLDER] = _dcp(making)
    return files


def _training(making: CheckpointMaking) -> dict[str, Any]:
    path = making.folder / TRAINING
    return {
        "style": "training",
        "format": "torch zip",
        "tag": making.tag,
        **_contents(making.collected.weights, prefix=""),
        "sha256": sha256_of(path),
        "loads": attempt(path, making.bare, inside="state_dict"),
        "loads_on_cpu": attempt(path, making.bare, inside="state_dict", on_cpu=True),
        "check": expected_codes("training", "", making.tag, averaged=making.collected.ema is not None),
        "repair": repair_command(TRAINING, "training", "", making.tag),
    }


def _of_style(making: CheckpointMaking, style: Style) -> dict[str, Any]:
    path = making.folder / style.file
    prefix = making.strategy.prefix if style.wrapped else WRAPPER if style.name == "ema" else ""
    tag = making.tag if style.tagged else "cpu"
    return {
        "style": style.name,
        "format": style.format,
        "tag": making.tag if style.tagged else None,
        **_contents(making.collected.weights, prefix),
        "sha256": sha256_of(path),
        **_loading(path, making.bare, style),
        "check": expected_codes(style.name, prefix, tag),
        "repair": repair_command(style.file, style.name, prefix, tag),
    }


def _loading(path: Path, bare: nn.Module | StateTensors, style: Style) -> dict[str, str]:
    if not style.tagged:
        from safetensors.torch import load_file

        said = fits(load_file(path), bare)
        return {"loads": said, "loads_on_cpu": said}
    return {"loads": attempt(path, bare), "loads_on_cpu": attempt(path, bare, on_cpu=True)}


def _dcp(making: CheckpointMaking) -> dict[str, Any]:
    folder = making.folder / dcp.FOLDER
    said = fits(dcp.read(folder, making.collected.weights), making.bare)
    return {
        "style": "dcp",
        "format": "torch distributed checkpoint",
        "tag": None,  # each rank moves its tensors to the CPU, and the metadata names no device
        **_contents(making.collected.weights, prefix=""),
        "sha256": {path.name: sha256_of(path) for path in sorted(folder.iterdir())},
        "loads": said,
        "loads_on_cpu": said,
        "check": ["X809"],
        "repair": "python -m torch.distributed.checkpoint.format_utils dcp_to_torch dcp model.pt",
    }


def _contents(weights: StateTensors, prefix: str) -> dict[str, Any]:
    """Return the bare keys, the prefix of each in the file, and the shape and dtype of each."""
    return {
        "keys": list(weights),
        "prefix": prefix,
        "shapes": {key: list(tensor.shape) for key, tensor in weights.items()},
        "dtypes": {key: str(tensor.dtype).removeprefix("torch.") for key, tensor in weights.items()},
    }


YES = "yes"


def attempt(path: Path, bare: nn.Module | StateTensors, *, inside: str | None = None, on_cpu: bool = False) -> str:
    """Return ``"yes"``, or the message of ``torch.load(path)`` or ``load_state_dict`` on a machine without a GPU.

    ``bare`` is an empty model, or the weights themselves where there is no module. ``inside`` is the key of the
    weights in a larger checkpoint; ``on_cpu`` loads with ``map_location="cpu"``.
    """
    try:
        with _as_elsewhere():
            loaded = torch.load(path, map_location="cpu" if on_cpu else None, weights_only=True)
        return fits(loaded if inside is None else loaded[inside], bare)
    except (RuntimeError, pickle.UnpicklingError) as error:
        return _said(error)


def fits(weights: Any, bare: nn.Module | StateTensors) -> str:
    """Return ``"yes"``, or what ``load_state_dict`` of the bare model says of these weights."""
    if not isinstance(bare, nn.Module):
        return YES if isinstance(weights, Mapping) and weights.keys() == bare.keys() else "other keys"
    try:
        bare.load_state_dict(weights)
    except RuntimeError as error:
        return _said(error)
    return YES


def _said(error: Exception) -> str:
    """Return the message.

    Where a backend is missing, a table of all operators of this torch follows, which is left out.
    """
    text = str(error)
    return text.partition("\n\n")[0] if isinstance(error, NotImplementedError) else text


@contextmanager
def _as_elsewhere() -> Iterator[None]:
    """``torch.load`` finds no GPU in this block, as on the machine of somebody who has none."""
    genuine = torch.cuda.is_available
    torch.cuda.is_available = lambda: False
    try:
        yield
    finally:
        torch.cuda.is_available = genuine
        # torch.load leaves the map_location of a load that failed behind for the next one (torch.serialization._load)
        if hasattr(torch.serialization, "_serialization_tls"):
            torch.serialization._serialization_tls.map_location = None


_OF_STYLE = {"training": "W301", "whole": "P204", "legacy": "C105", "ema": "N411"}
_OF_PREFIX = {"module.": "N401", "_orig_mod.": "N404"}


def expected_codes(style: str, prefix: str, tag: str, averaged: bool = False) -> list[str]:
    """Return the codes of all rules that apply, in order: of the style, of the wrappers in the keys, of the device tag.

    ``averaged``: the averaged weights are in the file next to the raw ones.
    """
    found = {_OF_STYLE[style]} if style in _OF_STYLE else set()
    if averaged:  # which of two sets is meant says more than that each lies under a name
        found = found - {"W301"} | {"W302"}
    if style != "ema":  # an averaged model is one finding, wrapper and counter together
        found |= {code for wrapper, code in _OF_PREFIX.items() if wrapper in prefix}
    return sorted(found | _of_tag(tag))


def repair_command(file: str, style: str, prefix: str, tag: str) -> str | None:
    """Return the command that leaves a file which loads into the bare model.

    It is None where there is none, or no need of one.
    """
    if style == "whole":  # what all its repairs are follows from the first of them
        return f"ckptdoctor fix {file}"
    options = []
    if prefix and style != "ema":
        options.append("--strip-module")
    if _of_tag(tag):
        options.append("--to-cpu")
    if style == "ema":
        options.append("--select N411")
    return f"ckptdoctor fix {file} {' '.join(options)}" if options else None


def _of_tag(tag: str) -> set[str]:
    backend, _, index = tag.partition(":")
    if backend == "cuda":
        return {"D602" if int(index or 0) else "D601"}
    if backend == "cpu":
        return set()
    return {"D605" if backend in WITHOUT_STORAGE else "D604"}
