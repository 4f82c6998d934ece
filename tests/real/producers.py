"""What other programs write, each with the loader of its own: the files that ckptdoctor is held against."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel


class Made(NamedTuple):
    """A file or folder, and what its producer's own loader reads from it."""

    path: Path
    theirs: Any


Producer = Callable[[Path], Made]


class Net(nn.Module):
    """Ties, buffers that are saved and one that is not, a list of modules, and attributes of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.bn = nn.BatchNorm1d(4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.fc.weight
        self.layers = nn.ModuleList([nn.Linear(4, 4)])
        self.register_buffer("mask", torch.ones(3), persistent=False)
        self.extra = torch.arange(2.0)
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Something of everything."""
        return self.layers[0](self.tied(self.bn(self.fc(x)))) * self.scale + self.mask.sum() + self.extra.sum()


def trained(optimizer: str = "AdamW") -> tuple[Net, torch.optim.Optimizer]:
    """A network after one step."""
    torch.manual_seed(0)
    net = Net()
    made: torch.optim.Optimizer = getattr(torch.optim, optimizer)(net.parameters(), lr=0.01)

    def loss() -> torch.Tensor:
        made.zero_grad()
        value = net(torch.ones(2, 4)).pow(2).sum()
        value.backward()
        return value

    made.step(loss)
    return net, made


# ---- torch.save


def saved(contents: Callable[[], Any], *, safe: bool = True, **options: Any) -> Producer:
    """A producer that calls ``torch.save``; ``safe`` is whether ``weights_only=True`` reads the file."""

    def produce(folder: Path) -> Made:
        torch.save(contents(), folder / "x.pt", **options)
        return Made(folder / "x.pt", torch.load(folder / "x.pt", weights_only=safe))

    return produce


def _training(optimizer: str) -> Callable[[], Any]:
    def contents() -> dict[str, Any]:
        net, made = trained(optimizer)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(made, 0.1, total_steps=9, cycle_momentum=False)
        states = {"model": net.state_dict(), "optimizer": made.state_dict(), "scheduler": scheduler.state_dict()}
        return {**states, "scaler": torch.amp.GradScaler("cpu").state_dict(), "epoch": 3, "rng": torch.get_rng_state()}

    return contents


def _dtypes() -> dict[str, torch.Tensor]:
    names = "float64 float32 float16 bfloat16 complex64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool"
    eights = "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz"
    numbers = torch.arange(1.0, 13).reshape(3, 4)
    return {name: numbers.to(getattr(torch, name)) for name in f"{names} {eights}".split()}


def _shapes() -> dict[str, torch.Tensor]:
    base = torch.arange(100.0)
    views = {"view": base[10:20], "turned": base.view(10, 10).t(), "every third": base[::3], "whole": base}
    odd = {"none": torch.empty(3, 0, 4), "scalar": torch.tensor(3.5), "wide": torch.ones(1).expand(5, 5)}
    last = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    return {**views, **odd, "channels last": last, "parameter": nn.Parameter(torch.ones(2))}


def _names() -> dict[str, torch.Tensor]:
    names = ["a" * 5000, "", "ключ.重み.🙂", "two\nlines", "\x1b[31mred", "with space", "sl/ash", 'qu"ote']
    return {name: torch.full((2,), float(index)) for index, name in enumerate(names)}


def _sparse() -> dict[str, torch.Tensor]:
    dense = torch.zeros(4, 6)
    dense[0, 1], dense[2, 3] = 1, 2
    compressed = {"csr": dense.to_sparse_csr(), "csc": dense.to_sparse_csc(), "bsr": dense.to_sparse_bsr((2, 2))}
    twice = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (3, 4))
    return {"coo": dense.to_sparse(), "not coalesced": twice, **compressed}


def _quantized() -> dict[str, torch.Tensor]:
    values, scales = torch.randn(3, 4), torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    per_channel = torch.quantize_per_channel(values, scales, torch.tensor([0, 1, 2]), 0, torch.qint8)
    return {"tensor": torch.quantize_per_tensor(values, 0.1, 10, torch.quint8), "channel": per_channel}


# ---- programs


def scripted(make: Callable[[], Any]) -> Producer:
    """A producer that calls ``torch.jit.save``."""

    def produce(folder: Path) -> Made:
        torch.jit.save(make(), folder / "x.pt")
        return Made(folder / "x.pt", torch.jit.load(folder / "x.pt").state_dict())

    return produce


def _exported(folder: Path) -> Made:
    torch.export.save(torch.export.export(trained()[0].eval(), (torch.ones(2, 4),)), folder / "x.pt2")
    return Made(folder / "x.pt2", dict(torch.export.load(folder / "x.pt2").state_dict))


# ---- NumPy, pickle and safetensors


def _arrays() -> dict[str, Any]:
    turned = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    return {"w/x": np.arange(6.0).reshape(2, 3), "b": np.array(3), "none": np.zeros((0, 3)), "turned": turned}


def _npz(folder: Path) -> Made:
    np.savez(folder / "x.npz", **_arrays())
    return Made(folder / "x.npz", dict(np.load(folder / "x.npz")))


def _packed_npz(folder: Path) -> Made:
    np.savez_compressed(folder / "x.npz", **_arrays())
    return Made(folder / "x.npz", dict(np.load(folder / "x.npz")))


def _pickled(folder: Path) -> Made:
    contents = {"arrays": _arrays(), "weights": dict(trained()[0].state_dict()), "epoch": 3}
    (folder / "x.pkl").write_bytes(pickle.dumps(contents))
    return Made(folder / "x.pkl", pickle.loads((folder / "x.pkl").read_bytes()))


def _safetensors(folder: Path) -> Made:
    save_file({key: value.clone() for key, value in _dtypes().items()}, folder / "x.safetensors", {"format": "pt"})
    return Made(folder / "x.safetensors", load_file(folder / "x.safetensors"))


_OPTIMIZERS = ("SGD", "Adam", "Adagrad", "Adadelta", "Adafactor", "ASGD", "LBFGS", "NAdam", "RAdam", "RMSprop", "Rprop")

PRODUCERS: dict[str, Producer] = {
    "a state dict": saved(lambda: trained()[0].state_dict()),
    "a state dict, legacy": saved(lambda: trained()[0].state_dict(), _use_new_zipfile_serialization=False),
    "protocol 4": saved(_training("AdamW"), safe=False, pickle_protocol=4),
    "protocol 5, legacy": saved(
        _training("AdamW"), safe=False, pickle_protocol=5, _use_new_zipfile_serialization=False
    ),
    **{f"trained by {name}": saved(_training(name)) for name in _OPTIMIZERS},
    "an average": saved(lambda: AveragedModel(Net()).state_dict()),
    "every dtype": saved(_dtypes),
    "views and shapes": saved(_shapes),
    "views and shapes, legacy": saved(_shapes, _use_new_zipfile_serialization=False),
    "names": saved(_names),
    "many names": saved(lambda: OrderedDict((f"layer{i}.w", torch.full((1,), float(i))) for i in range(1000))),
    "sparse tensors": saved(_sparse),
    "quantized tensors": saved(_quantized),
    "a script": scripted(lambda: torch.jit.script(trained()[0])),
    "a trace": scripted(lambda: torch.jit.trace(trained()[0].eval(), torch.ones(2, 4))),
    "a frozen script": scripted(lambda: torch.jit.freeze(torch.jit.script(trained()[0].eval()))),
    "a scripted LSTM": scripted(lambda: torch.jit.script(nn.LSTM(3, 4, 2))),
    "an exported program": _exported,
    "a NumPy archive": _npz,
    "a packed NumPy archive": _packed_npz,
    "a pickle": _pickled,
    "a safetensors file": _safetensors,
}
