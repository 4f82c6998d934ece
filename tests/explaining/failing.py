"""Ways to make torch and safetensors fail, each with the rule that explains what they then say."""

from __future__ import annotations

import argparse
import gzip
import pathlib
import pickle
import traceback

import numpy
import safetensors.torch
import torch
from torch import nn

from ckptdoctor.rules.examples import T
from tests import builders


def traceback_of(make, folder):
    """The whole traceback that a function ends with, as a program would print it."""
    try:
        make(folder)
    except Exception:
        return traceback.format_exc()
    raise AssertionError("it did not fail")


def zipped():
    """A torch file, and its bytes."""
    return {"a": torch.arange(4000.0), "b": torch.ones(3000)}


def load_bytes(data, name="model.pt", **options):
    """A function that loads a file of these bytes."""

    def load(folder):
        (folder / name).write_bytes(data)
        torch.load(folder / name, **options)

    return load


def load_safetensors_bytes(data):
    def load(folder):
        (folder / "model.safetensors").write_bytes(data)
        safetensors.torch.load_file(folder / "model.safetensors")

    return load


def load_object(thing, **options):
    """A function that saves something and loads it."""

    def load(folder):
        torch.save(thing, folder / "model.pt")
        torch.load(folder / "model.pt", **options)

    return load


def load_tagged(device):
    def load(folder):
        builders.save({"a": T((2, 3), device=device)}, folder / "model.pt")
        torch.load(folder / "model.pt")

    return load


def cut_zip(keep):
    def load(folder):
        torch.save(zipped(), folder / "whole.pt")
        load_bytes((folder / "whole.pt").read_bytes()[:keep])(folder)

    return load


def cut_legacy(folder):
    torch.save(zipped(), folder / "whole.pt", _use_new_zipfile_serialization=False)
    load_bytes((folder / "whole.pt").read_bytes()[:-100])(folder)


def cut_safetensors(end):
    def load(folder):
        load_safetensors_bytes(safetensors.torch.save(zipped())[:end])(folder)

    return load


def longer_safetensors(folder):
    load_safetensors_bytes(safetensors.torch.save(zipped()) + b"123")(folder)


def zip_by_hand(folder):
    import zipfile

    with zipfile.ZipFile(folder / "model.pt", "w") as file:
        file.writestr("model.pth", "x" * 100)
    torch.load(folder / "model.pt")


def as_program(folder):
    torch.save(zipped(), folder / "model.pt")
    torch.jit.load(folder / "model.pt")


def mapped(folder):
    torch.save(zipped(), folder / "model.pt", _use_new_zipfile_serialization=False)
    torch.load(folder / "model.pt", mmap=True)


def save_safetensors(tensors):
    return lambda folder: safetensors.torch.save_file(tensors, folder / "model.safetensors")


def read_format(folder):
    safetensors.torch.save_file(zipped(), folder / "model.safetensors")
    with safetensors.safe_open(folder / "model.safetensors", "pt") as file:
        metadata = file.metadata()
        metadata.get("format")


def smaller_optimizer(folder):
    layer = nn.Linear(2, 3)
    saved = torch.optim.Adam(layer.parameters()).state_dict()
    torch.optim.Adam([layer.weight]).load_state_dict(saved)


def reordered_optimizer(folder):
    one, other = nn.Parameter(torch.ones(2048)), nn.Parameter(torch.ones(7))
    first = torch.optim.Adam([one, other])
    (one.sum() + other.sum()).backward()
    first.step()
    second = torch.optim.Adam([other, one], foreach=False)
    second.load_state_dict(first.state_dict())
    second.step()


def load_into(model, weights, **options):
    return lambda folder: model.load_state_dict(weights, **options)


def unwrapped(weights):
    return {f"module.{key}": value for key, value in weights.items()}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


class Own(nn.Module):
    """A class of ours, which weights_only does not know."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)


WEIGHTS = net().state_dict()
OLD = {"running_mean": torch.zeros(3), "running_var": torch.ones(3)}  # without the metadata that torch saves today
CASES = {
    "an LFS pointer": ("F001", load_bytes(b"version https://git-lfs.github.com/spec/v1\n")),
    "an LFS pointer, unsafe": ("F001", load_bytes(b"version https://git-lfs.github.com/spec/v1\n", weights_only=False)),
    "an LFS pointer as safetensors": ("F001", load_safetensors_bytes(b"version https://git-lfs.github.com/spec/v1\n")),
    "a page": ("F002", load_bytes(b"<!DOCTYPE html>")),
    "a page, unsafe": ("F002", load_bytes(b"<!DOCTYPE html>", weights_only=False)),
    "JSON": ("F003", load_bytes(b'{"error": "not found"}')),
    "gzip": ("C102", load_bytes(gzip.compress(b"x" * 1000))),
    "gzip, unsafe": ("C102", load_bytes(gzip.compress(b"x" * 1000), weights_only=False)),
    "a plain pickle": ("C104", load_bytes(pickle.dumps({"a": 1}, 4))),
    "a plain pickle, unsafe": ("C104", load_bytes(pickle.dumps({"a": 1}, 4), weights_only=False)),
    "a NumPy array": ("C101", load_bytes(b"\x93NUMPY" + b"a" * 100)),
    "safetensors called .pt": ("C101", load_bytes(safetensors.torch.save(zipped()))),
    "an empty file": ("F004", load_bytes(b"")),
    "an empty file, unsafe": ("F004", load_bytes(b"", weights_only=False)),
    "an empty safetensors file": ("F004", load_safetensors_bytes(b"")),
    "zeros": ("F010", load_bytes(bytes(20_000))),
    "zeros, unsafe": ("F010", load_bytes(bytes(20_000), weights_only=False)),
    "zeros as safetensors": ("C110", load_safetensors_bytes(bytes(20_000))),
    "a cut archive": ("F005", cut_zip(10_000)),
    "an archive cut to its first bytes": ("F005", cut_zip(300)),
    "a cut legacy file": ("F006", cut_legacy),
    "a cut safetensors file": ("F007", cut_safetensors(-10)),
    "a cut safetensors header": ("F007", cut_safetensors(20)),
    "a longer safetensors file": ("F007", longer_safetensors),
    "a zip by hand": ("C102", zip_by_hand),
    "weights given to torch.jit.load": ("C108", as_program),
    "a legacy file, mapped": ("C105", mapped),
    "shared tensors": ("A701", save_safetensors(dict.fromkeys("ab", torch.ones(3)))),
    "a transposed tensor": ("A707", save_safetensors({"a": torch.ones(3, 4).t()})),
    "a sparse tensor": ("A709", save_safetensors({"a": torch.eye(3).to_sparse()})),
    "a number among tensors": ("W307", save_safetensors({"a": 1})),
    "no metadata": ("M971", read_format),
    "bfloat16 to NumPy": ("T555", lambda folder: torch.ones(3, dtype=torch.bfloat16).numpy()),
    "a random state": ("D607", lambda folder: torch.set_rng_state(torch.ones(3))),
    "another device": ("D601", load_tagged("cuda:0")),
    "a foreign device": ("D604", load_tagged("xla:0")),
    "a namespace": ("P201", load_object({"args": argparse.Namespace(lr=1)})),
    "a NumPy scalar": ("P202", load_object({"best": numpy.float64(1)})),
    "a path": ("P203", load_object({"path": pathlib.PurePosixPath("a")})),
    "a whole model of torch's": ("P204", load_object(nn.Linear(2, 2))),
    "a model's own class": ("P201", load_object(Own())),
    "a class that is gone": ("P204", load_bytes(b"\x80\x02cnets.resnet\nNet\n.", weights_only=False)),
    "an optimizer with fewer parameters": ("O751", smaller_optimizer),
    "an optimizer with another order": ("O752", reordered_optimizer),
    "a list of weights": ("W305", load_into(net(), [1])),
    "a model as weights": ("P204", load_into(net(), net())),
    "DataParallel": ("N401", load_into(net(), unwrapped(WEIGHTS))),
    "another model, strict=False": ("S510", load_into(net(), {k: torch.ones(9, 9, 9) for k in WEIGHTS}, strict=False)),
    "into DataParallel": ("N402", load_into(nn.DataParallel(net()), WEIGHTS)),
    "compiled": ("N404", load_into(net(), {f"_orig_mod.{key}": value for key, value in WEIGHTS.items()})),
    "averaged": ("N411", load_into(net(), torch.optim.swa_utils.AveragedModel(net()).state_dict())),
    "an attribute of another module": ("N409", load_into(net(), {f"encoder.{k}": v for k, v in WEIGHTS.items()})),
    "nested": ("W301", load_into(net(), {"epoch": 1, "state_dict": WEIGHTS})),
    "an optimizer's state": ("W303", load_into(net(), torch.optim.SGD(net().parameters(), 0.1).state_dict())),
    "another head": (
        "S501",
        load_into(nn.ModuleDict({"fc": nn.Linear(3, 10)}), nn.ModuleDict({"fc": nn.Linear(3, 7)}).state_dict()),
    ),
    "an array in the weights": (
        "W306",
        load_into(nn.Linear(1, 1), {"weight": numpy.ones((1, 1)), "bias": torch.ones(1)}),
    ),
    "running statistics": ("N418", load_into(nn.InstanceNorm2d(3), OLD)),
}
