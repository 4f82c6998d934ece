"""Values of real files, for the tests beside this module."""

from __future__ import annotations

from pathlib import Path

import torch

from ckptdoctor import formats
from ckptdoctor.values.examine import examine_values
from ckptdoctor.values.statistics import TensorValues, Values


def values_in(path: Path, **options: object) -> Values:
    """What the values of a file are."""
    with formats.opened(str(path)) as (source, container):
        return examine_values(formats.read(source, container), source, **options)


def saved(folder: Path, contents: object, **options: object) -> Path:
    """A checkpoint that torch wrote."""
    path = folder / "model.pt"
    torch.save(contents, path, **options)
    return path


def one(folder: Path, tensor: torch.Tensor, **options: object) -> TensorValues:
    """The values of a single tensor, through a real file."""
    return values_in(saved(folder, {"w": tensor}), **options).tensors[("w",)]
