from __future__ import annotations

import argparse
import datetime
import enum
import pathlib
from pathlib import Path

import numpy as np
import pytest
import torch

from ckptdoctor import formats
from ckptdoctor.engine.weights_only import weights_only_edits
from ckptdoctor.errors import RefusedError
from ckptdoctor.writing import publish


class Meter:
    def __init__(self) -> None:
        self.count = 3
        self.history = [1.0, np.float64(2)]


class Colour(enum.Enum):
    RED = 1


def rewritten(folder: Path, contents: object) -> object:
    path = folder / "model.pt"
    torch.save(contents, path)
    with formats.opened(path) as (source, container):
        checkpoint = formats.read(source, container)
        edits = weights_only_edits(checkpoint)
        if not edits:
            return torch.load(path)
        publish(formats.rewrite(source, checkpoint, edits), str(folder / "safe.pt"))
    return torch.load(folder / "safe.pt")


def test_objects_become_plain_and_all_else_stays(tmp_path: Path):
    """What torch refuses is what it says; tensors and plain data are what they were."""
    contents = {
        "w": torch.ones(2),
        "args": argparse.Namespace(lr=0.1, out=pathlib.PurePosixPath("/a/b"), deep={"n": [np.int64(4)]}),
        "best": np.float32(0.5),
        "day": datetime.date(2020, 1, 2),
        "meter": Meter(),
        "epoch": 3,
    }
    loaded = rewritten(tmp_path, contents)
    assert torch.equal(loaded.pop("w"), torch.ones(2))
    assert loaded == {
        "args": {"lr": 0.1, "out": "/a/b", "deep": {"n": [4]}},
        "best": 0.5,
        "day": "2020-01-02",
        "meter": {"count": 3, "history": [1.0, 2.0]},
        "epoch": 3,
    }


def test_what_torch_loads_anyway_is_left(tmp_path: Path):
    """Nothing refused, nothing done."""
    assert rewritten(tmp_path, {"epoch": 3}) == {"epoch": 3}


@pytest.mark.parametrize(
    "value",
    [Colour.RED, Meter, np.zeros(3), argparse.Namespace(t=torch.ones(1))],
    ids=["enum", "class", "array", "tensor"],
)
def test_what_plain_data_cannot_say_is_refused(tmp_path: Path, value: object):
    """By name, with what to do; never dropped."""
    with pytest.raises(RefusedError, match=r"odd stays refused: .*\n  choose: --drop"):
        rewritten(tmp_path, {"w": torch.ones(2), "odd": value, "args": argparse.Namespace(a=1)})
