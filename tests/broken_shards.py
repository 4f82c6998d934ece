"""Folders of three shards, the second of which is damaged in one of the ways that people meet, or not there."""

from __future__ import annotations

import json
import os

import torch
from safetensors.torch import save_file

PAGE = "<!DOCTYPE html><html><head><title>404 Not Found</title></head><body></body></html>\n"
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'ab' * 32}\nsize 4976698672\n"
DAMAGE = ("cut", "beheaded", "zeroed", "missing", "page", "pointer", "empty")
SECOND = [f"model.layers.{layer}.{name}.weight" for layer in (2, 3) for name in ("a", "b", "c", "d")]


def name(number: int, suffix: str = "safetensors") -> str:
    """The name of a shard."""
    stem = "model" if suffix == "safetensors" else "pytorch_model"
    return f"{stem}-{number:05}-of-00003.{suffix}"


def tensors() -> dict[str, torch.Tensor]:
    """Six layers of four tensors; each shard has two layers."""
    torch.manual_seed(0)
    return {f"model.layers.{layer}.{name}.weight": torch.randn(16, 16) for layer in range(6) for name in "abcd"}


def folder(path: str | os.PathLike[str], suffix: str = "safetensors", damage: str = "", *, index: bool = True) -> str:
    """Make the folder; the path of the second shard in it."""
    os.makedirs(path)
    every = list(tensors().items())
    where: dict[str, str] = {}
    for number in (1, 2, 3):
        shard = {key: value.clone() for key, value in every[8 * number - 8 : 8 * number]}
        file = os.path.join(path, name(number, suffix))
        save_file(shard, file, {"format": "pt"}) if suffix == "safetensors" else torch.save(shard, file)
        where |= dict.fromkeys(shard, name(number, suffix))
    if index:
        listed = "model.safetensors" if suffix == "safetensors" else "pytorch_model.bin"
        with open(os.path.join(path, f"{listed}.index.json"), "w") as out:
            json.dump({"metadata": {"total_size": 24 * 1024}, "weight_map": where}, out)
    second = os.path.join(path, name(2, suffix))
    hurt(second, damage)
    return second


def hurt(path: str | os.PathLike[str], damage: str) -> None:
    """Damage a file in place; "" leaves it whole."""
    size = os.path.getsize(path)
    if damage == "missing":
        os.remove(path)
    elif damage in ("cut", "beheaded"):
        os.truncate(path, size // 2 if damage == "cut" else 200)
    elif damage:
        put = {"zeroed": bytes(size), "page": PAGE.encode(), "pointer": POINTER.encode(), "empty": b""}[damage]
        with open(path, "wb") as out:
            out.write(put)
