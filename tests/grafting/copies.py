"""Copies of checkpoints with one thing wrong, for the tests of grafts."""

from __future__ import annotations

import struct
import zipfile

import torch
from safetensors.torch import load_file, save_file

from ckptdoctor.grafting.request import GraftRequest

NAN = float("nan")


def network(seed=0):
    """Weights of three layers, one of them tied, one not contiguous, one in bfloat16."""
    torch.manual_seed(seed)
    weights = {f"layer{i}.weight": torch.rand(40, 30) for i in range(3)}
    weights["embed.weight"] = torch.rand(50, 8)
    weights["head.weight"] = weights["embed.weight"]
    weights["turned.weight"] = torch.rand(12, 20).t()
    weights["small.bias"] = torch.rand(64).bfloat16()
    return weights


def training(seed=0):
    """The same with an optimizer and plain values around it."""
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Linear(30, 10))
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.rand(2, 20)).sum().backward()
    optimizer.step()
    return {"epoch": 3, "state_dict": net.state_dict(), "optimizer": optimizer.state_dict(), "lists": [torch.rand(9)]}


def save_legacy(weights, path):
    torch.save(weights, path, _use_new_zipfile_serialization=False)


def save_flat(weights, path):
    save_file({key: tensor.contiguous().clone() for key, tensor in weights.items()}, path)


SAVE = {".pt": torch.save, ".pth": save_legacy, ".safetensors": save_flat}


def equal(path, weights):
    loaded = load_file(path) if path.suffix == ".safetensors" else torch.load(path)
    return loaded.keys() == weights.keys() and all(torch.equal(loaded[key], weights[key]) for key in weights)


def flip(source, target, *bits):
    """A copy of a file with one bit flipped, or with several: more than one in a storage need another copy."""
    data = bytearray(source.read_bytes())
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    target.write_bytes(data)


def places(path):
    """The first byte and the length of each storage of an archive."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if "/data/" in info.filename:
                with open(path, "rb") as file:
                    file.seek(info.header_offset + 26)
                    name, extra = struct.unpack("<HH", file.read(4))
                found[info.filename.rpartition("/")[2]] = (info.header_offset + 30 + name + extra, info.file_size)
    return found


def asked(folder, *, path="bad.pt", donor="good.pt", output="out.pt", **more):
    output = None if output is None else str(folder / output)
    return GraftRequest(str(folder / path), str(folder / donor), output, **more)


def with_nan(weights, key):
    return {**weights, key: torch.where(torch.arange(weights[key].shape[-1]) == 3, NAN, weights[key].float())}
