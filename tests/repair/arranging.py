"""Real files for the tests of edits of tensors, and what torch reads from the edited ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ckptdoctor.edits import (
    Edit,
)
from tests.repair.applying import repaired
from tests.repair.checkpoints import save

FORMATS = pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
DTYPES = [
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.bool, torch.int8, torch.int64, torch.uint16, torch.complex64, torch.complex128),
]


def random(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Elements of random bytes, NaNs of all kinds among them; booleans are 0 or 1."""
    count = torch.Size(shape).numel()
    if dtype is torch.bool:
        return torch.randint(0, 2, shape).bool()
    return torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8).view(dtype).reshape(shape)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Dtype, shape and every byte of the elements."""
    flat = [torch.empty(each.shape, dtype=each.dtype).copy_(each.detach()).reshape(-1) for each in (one, other)]
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and torch.equal(*[each.view(torch.uint8) for each in flat])
    )


def written(contents: dict[str, torch.Tensor], folder: Path, suffix: str) -> Path:
    path = folder / f"model{suffix}"
    if suffix == ".safetensors":
        save_file(contents, path)
        return path
    return save(contents, path)


def loaded(path: Path | str) -> dict[str, torch.Tensor]:
    path = str(path)
    return load_file(path) if path.endswith(".safetensors") else torch.load(path, weights_only=True)


def edited(contents: dict[str, torch.Tensor], folder: Path, suffix: str, *edits: Edit) -> dict[str, torch.Tensor]:
    """What the file holds after a proven repair with these edits."""
    return loaded(repaired(written(contents, folder, suffix), edits).plan.output)
