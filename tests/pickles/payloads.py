"""Everything people put into checkpoints, as ``torch.save`` writes it, and awkward plain objects."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import enum
import io
import pathlib
import warnings
import zipfile

import numpy
import torch
from torch import nn


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Config:
    width: int = 4
    names: list = dataclasses.field(default_factory=lambda: ["a", "b"])


class Slotted:
    __slots__ = ("a", "b")


class Numbers(list):
    pass


class Table(dict):
    pass


class Keyword:
    def __new__(cls, *, size):
        return object.__new__(cls)

    def __getnewargs_ex__(self):
        return (), {"size": 1}


class Circular:
    """Its own reduce arguments lead back to it, so that a pickler makes it twice."""

    def __init__(self, ring=None):
        self.ring = ring

    def __reduce__(self):
        return Circular, (self.__dict__.get("ring"),), self.__dict__


class Filled:
    """An object whose reduce fills it with items and keys after it led back to itself."""

    def __init__(self, ring=None):
        self.ring = ring

    def __reduce__(self):
        return Filled, (self.ring,), {"ring": self.ring}, iter([self.ring, 1]), iter([(1, self.ring), (2, "b")])

    def append(self, item):
        pass

    def extend(self, items):
        pass

    def __setitem__(self, key, value):
        pass


class Special(torch.Tensor):
    pass


def slotted():
    value = Slotted()
    value.a, value.b = 1, value
    return value


def circular(kind):
    value = kind()
    value.ring = [value]
    return value


def own_list():
    value = []
    value.append(value)
    return value


def own_dict():
    value = {}
    value["self"] = value
    return value


def own_tuple(*others):
    value = ([], *others)
    value[0].append(value)
    return value


def filled_subclasses():
    numbers, table = Numbers([1, 2]), Table(a=1)
    numbers.table, table["numbers"] = table, numbers
    return [numbers, table]


# plain objects by name
OBJECTS = {
    "enum": Colour.RED,
    "dataclass": Config(),
    "slots": slotted(),
    "namespace": argparse.Namespace(lr=0.1, layers=[1, 2]),
    "path": pathlib.PurePosixPath("runs/1"),
    "time": datetime.datetime(2024, 1, 2),
    "ordered": collections.OrderedDict(a=1),
    "counter": collections.Counter("aab"),
    "defaultdict": collections.defaultdict(list, {1: [2]}),
    "list subclass": filled_subclasses(),
    "keyword arguments": Keyword(size=1),
    "complex": 1 + 2j,
    "range": range(3),
    "types": [int, dict, type(None), ..., NotImplemented, len],
    "own list": own_list(),
    "own dict": own_dict(),
    "own tuple": own_tuple(),
    "own long tuple": own_tuple(1, 2, 3, 4),
    "circular reduce": circular(Circular),
    "circular reduce with items": circular(Filled),
    "nested frozenset": frozenset({(1, frozenset({2}))}),
    "many": [{i: str(i) for i in range(1100)}, list(range(3000)), ["k" * 3] * 1001],
    "large": ["x" * 70000, b"y" * 70000, bytearray(70000), "z" * 300, list(range(40000))],
}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 4, bias=False)
        self.head.weight = self.embed.weight


def _attributed():
    parameter = nn.Parameter(torch.zeros(2))
    parameter.tag = "x"
    return parameter


def _optimizer():
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    net.head(net.embed(torch.tensor([1]))).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    return {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(), "model": net.state_dict()}


def _quantized():
    per_tensor = torch.quantize_per_tensor(torch.zeros(2, 2), 0.1, 0, torch.quint8)
    per_channel = torch.quantize_per_channel(torch.zeros(2, 2), torch.ones(2), torch.zeros(2), 0, torch.qint8)
    return [per_tensor, per_channel]


def _sparse():
    dense = torch.eye(4)
    return [dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_bsr((2, 2))]


def _views():
    base = torch.arange(24.0).reshape(2, 3, 4)
    return [base, base[1], base.permute(2, 0, 1), torch.complex(base, base).conj(), torch.zeros(1, 1, 1, 1, 2)]


def _numpy():
    structured = numpy.zeros(2, dtype=[("a", "f4"), ("b", "i8")])
    return {
        "scalar": numpy.float64(0.5),
        "array": numpy.arange(3),
        "structured": structured,
        "dtype": numpy.dtype("f2"),
    }


# what torch.save is given, by name; made when asked for
TORCH = {
    "state dict": lambda: Net().state_dict(),
    "whole module": Net,
    "parameter with attributes": _attributed,
    "optimizer and scheduler": _optimizer,
    "numpy": _numpy,
    "sparse": _sparse,
    "quantized": _quantized,
    "subclass": lambda: torch.zeros(2).as_subclass(Special),
    "meta": lambda: torch.zeros(2, 3, device="meta"),
    "float8": lambda: [torch.zeros(2).to(torch.float8_e4m3fn), torch.zeros(2).to(torch.bfloat16), torch.float8_e5m2],
    "views": _views,
    "scalars": lambda: {f"step{i}": torch.tensor(i) for i in range(60)},
    "rng": lambda: {"torch": torch.get_rng_state(), "size": torch.Size((1, 2)), "device": torch.device("cuda:1")},
    "objects": lambda: {name: value for name, value in OBJECTS.items() if name != "large"},
}


def saved(value, protocol=2):
    """The ``data.pkl`` of a ``torch.save``."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # quantized and sparse CSR tensors warn that they are old or new
        torch.save(value() if callable(value) else value, file, pickle_protocol=protocol)
    with zipfile.ZipFile(file) as archive:
        return archive.read("archive/data.pkl")
