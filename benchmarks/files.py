"""The large files that benchmarks work on, written by torch and safetensors, kept between runs in one folder.

``made(folder, recipe)``, with a number of tensors for some of them, writes in a process of its own: the peak memory
that the system tells of a child is never less than what its parent held when it started it.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

TWO_GB = 2_000_000_000
LAYERS = 300


def made(folder: Path, recipe: Callable[..., Path], *count: int) -> Path:
    """The file that ``recipe`` writes into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, str(folder), recipe.__name__, *map(str, count)]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def two_gb_pt(folder: Path) -> Path:
    """A 2 GB torch zip of 300 float32 tensors under ``module.`` keys, as a DataParallel run saves it."""
    path = folder / "two_gb.pt"
    if not path.exists():
        import torch

        torch.save(_layers(), path)
    return path


def two_gb_safetensors(folder: Path) -> Path:
    """The same tensors in a safetensors file."""
    path = folder / "two_gb.safetensors"
    if not path.exists():
        from safetensors.torch import save_file

        save_file(_layers(), path, metadata={"format": "pt"})
    return path


def two_gb_dcp(folder: Path) -> Path:
    """The same tensors as torch.distributed.checkpoint writes them: a folder."""
    path = folder / "two_gb_dcp"
    if not path.exists():
        import torch.distributed.checkpoint as dcp

        dcp.save(_layers(), checkpoint_id=path, no_dist=True)
    return path


def many_tensors_pt(folder: Path, count: int = 50_000) -> Path:
    """A torch zip of 50,000 small tensors."""
    path = folder / f"tensors_{count}.pt"
    if not path.exists():
        import torch

        names = (f"module.blocks.{index // 10}.part{index % 10}.weight" for index in range(count))
        torch.save({name: torch.zeros(2, 3) for name in names}, path)
    return path


def many_tensors_safetensors(folder: Path, count: int = 50_000) -> Path:
    """A safetensors file of so many small tensors, whose values are a hole."""
    path = folder / f"tensors_{count}_module.safetensors"
    if not path.exists():
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        for index in range(count):
            key = f"module.b.{index // 10}.p{index % 10}.w"
            header[key] = {"dtype": "F32", "shape": [2], "data_offsets": [index * 8, index * 8 + 8]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + count * 8)
    return path


def hundred_gb_pt(folder: Path) -> Path:
    """A sparse 100 GB torch zip: torch writes its structure, the values are a hole."""
    path = folder / "hundred_gb.pt"
    if not path.exists():
        import torch
        from torch.serialization import skip_data

        hole = folder / "hole"
        nbytes = 100_000_000_000 // 40
        with open(hole, "wb") as file:
            file.truncate(nbytes)
        state = {}
        for index in range(40):
            storage = torch.UntypedStorage.from_file(os.fspath(hole), False, nbytes)
            values = torch.empty(0, dtype=torch.float32).set_(storage, 0, (nbytes // 4,), (1,))
            state[f"module.layers.{index}.weight"] = values
        with skip_data():
            torch.save(state, path)
        hole.unlink()
    return path


def hundred_gb_safetensors(folder: Path) -> Path:
    """A sparse 100 GB safetensors file."""
    path = folder / "hundred_gb.safetensors"
    if not path.exists():
        count, nbytes = 400, 250_000_000
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        for index in range(count):
            header[f"layers.{index}.weight"] = {
                "dtype": "F32",
                "shape": [nbytes // 4],
                "data_offsets": [index * nbytes, (index + 1) * nbytes],
            }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + count * nbytes)
    return path


def hundred_gb_shards(folder: Path) -> Path:
    """A folder of 20 sparse safetensors files of 5 GB each, and their index."""
    path = folder / "hundred_gb_shards"
    shards, count, nbytes = 20, 20, 250_000_000
    if not (path / "model.safetensors.index.json").exists():
        path.mkdir(exist_ok=True)
        table = {}
        for shard in range(shards):
            name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
            header: dict[str, object] = {"__metadata__": {"format": "pt"}}
            for at in range(count):
                key = f"layers.{shard * count + at}.weight"
                table[key] = name
                place = [at * nbytes, (at + 1) * nbytes]
                header[key] = {"dtype": "F32", "shape": [nbytes // 4], "data_offsets": place}
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 8)
            with open(path / name, "wb") as file:
                file.write(struct.pack("<Q", len(text)) + text)
                file.truncate(8 + len(text) + count * nbytes)
        index = {"metadata": {"total_size": shards * count * nbytes}, "weight_map": table}
        (path / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    return path


def _layers() -> dict[str, object]:
    import torch

    elements = TWO_GB // 4 // LAYERS
    generator = torch.Generator().manual_seed(0)
    return {f"module.layers.{index}.weight": torch.rand(elements, generator=generator) for index in range(LAYERS)}


if __name__ == "__main__":
    print(globals()[sys.argv[2]](Path(sys.argv[1]), *map(int, sys.argv[3:])))
