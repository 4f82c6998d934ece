"""Two checkpoints that differ in every way there is, with values that are the same on every machine."""

from __future__ import annotations

import torch


def waves(*shape, phase=0.0):
    """Numbers without a random one among them."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float64) * 0.37 + phase).sin().mul(0.05).float().reshape(shape)


def plain():
    """A small ResNet: stem, two stages of two blocks, head."""
    found = {"conv1.weight": waves(16, 3, 7, 7)}
    for stage, width in enumerate((16, 32), 1):
        for block in range(2):
            name = f"layer{stage}.{block}"
            found[f"{name}.conv1.weight"] = waves(width, width, 3, 3, phase=stage + block)
            found[f"{name}.bn1.weight"] = waves(width, phase=stage) + 1
            found[f"{name}.bn1.bias"] = waves(width, phase=10 * stage + block)
    return found | {"fc.weight": waves(10, 32, phase=5), "fc.bias": waves(10, phase=6)}


def other():
    """The same with a block trained on, one tensor renamed, another head, and half a norm."""
    found = {name: value.clone() for name, value in plain().items()}
    found["layer2.1.conv1.weight"] += 0.2 * waves(32, 32, 3, 3, phase=77)
    found["layer2.1.bn1.weight"] += 1e-5 * waves(32, phase=33)
    found["layer1.1.bn1.weight"] = found["layer1.1.bn1.weight"].bfloat16()
    found["head.norm.weight"] = found.pop("layer1.0.bn1.bias")
    found |= {"fc.weight": waves(100, 32, phase=5), "fc.bias": waves(100, phase=6), "aux.weight": waves(3, 3)}
    return found


def save_pair(folder):
    """``a.pt``, ``b.pt``; ``wrapped.pt``, whose names a wrapper has changed, and ``target.pt``, what it should fit."""
    torch.save({"epoch": 41, "state_dict": plain() | {"old.scale": torch.ones(4)}}, folder / "a.pt")
    torch.save({"epoch": 42, "state_dict": other(), "note": "\x1b[2Jx"}, folder / "b.pt")
    wrapped = {f"module.{name}": value for name, value in plain().items() if name != "fc.bias"}
    torch.save({"state_dict": wrapped | {"module.old.scale": torch.ones(4)}}, folder / "wrapped.pt")
    torch.save({f"module.{name}": value for name, value in plain().items()}, folder / "whole.pt")
    torch.save(plain() | {"fc.weight": waves(5, 32)}, folder / "target.pt")
    torch.save(plain(), folder / "exact.pt")
