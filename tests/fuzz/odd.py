"""Files of kinds that strangers' files had and the examples of rules have not: where faults were found before."""

from __future__ import annotations

import gzip
import io
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from tests.formats.torch.read.test_unseen_storages import HIDING
from tests.formats.torch.tar.support import tar_bytes

Writer = Callable[[Path], Any]


def _saved(make: Callable[[], object], legacy: bool = False) -> Writer:
    def write(path: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.save(make(), path, _use_new_zipfile_serialization=not legacy)

    return write


def _quantized() -> dict[str, object]:
    scales, zeros = torch.rand(4) + 0.1, torch.zeros(4, dtype=torch.long)
    by_channel = torch.quantize_per_channel(torch.randn(4, 3, 5, 5), scales, zeros, 0, torch.qint8)
    return {
        "conv.weight": by_channel.contiguous(memory_format=torch.channels_last),
        "fc.weight": torch.quantize_per_tensor(torch.randn(3, 4), 0.1, 3, torch.quint8),
    }


def _sparse() -> dict[str, object]:
    dense = torch.eye(4)
    return {"coo": dense.to_sparse(), "csr": dense.to_sparse_csr(), "bsr": dense.to_sparse_bsr((2, 2))}


def _views() -> dict[str, object]:
    base = torch.randn(6, 6)
    return {"t": base.t(), "gaps": base[::2, ::3], "wide": base[:1].expand(5, 6), "one": base[2], "none": base[:0]}


def _training() -> dict[str, object]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    random = {"torch": torch.get_rng_state()[:99], "numpy": np.random.get_state(), "python": (3, (1, 2, 3), None)}
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": random, "epoch": 3}


def _whole_module() -> dict[str, object]:
    return {"net": torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())}


def _script(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path)


def _npz(path: Path) -> None:
    file = io.BytesIO()
    np.savez(file, a=np.arange(6.0).reshape(2, 3), b=np.array([1, 2], "u2"), c=np.array(["x", "yy"]))
    path.write_bytes(file.getvalue())


def _arrays() -> bytes:
    return pickle.dumps({"w": np.arange(6, dtype="f4"), "t": torch.arange(3.0), "f": np.asfortranarray(np.eye(3))}, 4)


def _shards(path: Path) -> None:
    path.mkdir()
    save_file({"a.weight": torch.ones(2, 2)}, path / "model-00001-of-00002.safetensors")
    save_file({"b.weight": torch.ones(3)}, path / "model-00002-of-00002.safetensors")
    (path / "model.safetensors.index.json").write_text(
        '{"metadata": {"total_size": 28}, "weight_map": {"a.weight": "model-00001-of-00002.safetensors", '
        '"b.weight": "model-00002-of-00002.safetensors"}}'
    )
    (path / "config.json").write_text('{"architectures": ["X"], "model_type": "x", "torch_dtype": "float32"}')


def _dcp(path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"model": {"w": torch.ones(4, 4), "b": torch.zeros(3)}, "step": 7}, checkpoint_id=path, no_dist=True)


ODD: dict[str, tuple[str, Writer]] = {
    "nothing": ("m.pt", lambda path: path.write_bytes(b"")),
    "three bytes of gzip": ("m.gz", lambda path: path.write_bytes(b"\x1f\x8b\x08")),
    "an empty dict": ("m.pt", _saved(dict)),
    "a number": ("m.pt", _saved(lambda: 3)),
    "a tensor": ("m.pt", _saved(lambda: torch.ones(3))),
    "a list": ("m.pt", _saved(lambda: [torch.ones(3), {"a": torch.zeros(2)}])),
    "a training checkpoint": ("m.ckpt", _saved(_training)),
    "a legacy training checkpoint": ("m.ckpt", _saved(_training, True)),
    "a whole module": ("m.pt", _saved(_whole_module)),
    "views": ("m.pt", _saved(_views)),
    "legacy views": ("m.pt", _saved(_views, True)),
    "quantized": ("m.pt", _saved(_quantized)),
    "sparse": ("m.pt", _saved(_sparse)),
    "a program": ("m.pt", _script),
    "npz": ("m.npz", _npz),
    "npy": ("m.npy", lambda path: np.save(path, np.arange(12.0).reshape(3, 4).T)),
    "a pickle with arrays": ("m.pkl", lambda path: path.write_bytes(_arrays())),
    "a packed pickle": ("m.pkl.gz", lambda path: path.write_bytes(gzip.compress(_arrays()))),
    "a tar of torch": ("m.pt", lambda path: path.write_bytes(tar_bytes({"w": torch.ones(3), "v": torch.eye(2)}))),
    "shards": ("model", _shards),
    "a distributed checkpoint": ("dcp", _dcp),
    "safetensors": ("m.safetensors", lambda path: save_file({"w": torch.ones(2, 2), "b": torch.zeros(3)}, path)),
    **{
        f"hidden: {kind}": ("m.pt", _saved(lambda kind=kind: {"w": torch.ones(2), "x": HIDING[kind]}))
        for kind in HIDING
    },
}
