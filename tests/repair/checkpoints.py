"""Real training checkpoints, made by torch, for the tests of repairs."""

from __future__ import annotations

import argparse
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from tests.builders import saving_tags, tagged


class Net(nn.Module):
    """Convolution, batch norm, a module really called ``mlp_module``, tied weights, a buffer without elements."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, 3)
        self.bn1 = nn.BatchNorm2d(2)
        self.act = nn.ReLU()
        self.mlp_module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 2))
        self.head = nn.Linear(4, 2)
        self.head.weight = self.mlp_module[2].weight
        self.register_buffer("none", torch.zeros(0, 3))


def prefixed(state_dict: OrderedDict, *tokens: str) -> OrderedDict:
    """The state dict as a wrapper whose attributes are ``tokens`` gives it, ``_metadata`` included."""
    prefix = "".join(f"{token}." for token in tokens)
    made = OrderedDict((prefix + key, value) for key, value in state_dict.items())
    made._metadata = OrderedDict({"": {"version": 1}})
    for end in range(1, len(tokens)):
        made._metadata[".".join(tokens[:end])] = {"version": 1}
    for name, value in state_dict._metadata.items():
        made._metadata[(prefix + name).rstrip(".")] = value
    return made


def training(*tokens: str, device: str = "cpu", args: bool = False) -> dict[str, object]:
    """A checkpoint of a run: a wrapped model, an optimizer after one step, a scheduler, random states, an epoch."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.Adam(
        [(f"{''.join(f'{t}.' for t in tokens)}{name}", p) for name, p in model.named_parameters()]
    )
    loss = sum(parameter.sum() for parameter in model.parameters())
    loss.backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    state_dict = model.state_dict()
    for tensor in state_dict.values():
        tagged(tensor, device)
    made = {
        "state_dict": prefixed(state_dict, *tokens) if tokens else state_dict,
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "epoch": 41,
        "rng": torch.get_rng_state(),
        "best": [0.5, {"deep": (1, None, b"bytes", "module.conv1.weight")}],
        "view": torch.arange(24.0).reshape(4, 6).t(),
    }
    if args:
        made["args"] = argparse.Namespace(lr=0.1, data="cpu")
    return made


def save(contents: object, path: Path, legacy: bool = False) -> Path:
    """``torch.save`` with the device tags of ``tagged``."""
    with saving_tags():
        torch.save(contents, path, _use_new_zipfile_serialization=not legacy)
    return path


def load(path: Path | str, **options: object) -> object:
    return torch.load(path, **{"map_location": "cpu", "weights_only": False, **options})


def every_way(path: Path | str) -> list[Callable[[], object]]:
    """Plain, memory-mapped, and with computed storage offsets: the result must always be the same."""

    def computed() -> object:
        torch.utils.serialization.config.load.calculate_storage_offsets = True
        try:
            return load(path, mmap=True)
        finally:
            torch.utils.serialization.config.load.calculate_storage_offsets = False

    return [lambda: load(path), lambda: load(path, mmap=True), computed]
