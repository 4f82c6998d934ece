"""Choices go together or not; those that do not are refused with a sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ckptdoctor.errors import UsageError
from ckptdoctor.trainer.checks import require_choices
from ckptdoctor.trainer.config import STRATEGIES, RunConfig

REFUSED = [
    ({"epochs": 0}, "--epochs must be at least 1"),
    ({"batch_size": 0}, "--batch-size must be at least 1"),
    ({"every": 0}, "--every must be at least 1"),
    ({"workers": -1}, "--workers must be at least 0"),
    ({"lr": 0.0}, "--lr must be above 0"),
    ({"lr": float("nan")}, "--lr must be above 0"),
    ({"momentum": 1.0}, "--momentum must be at least 0 and below 1"),
    ({"timeout": 0.0}, "--timeout must be above 0 seconds, and at most 1,000,000"),
    ({"timeout": float("inf")}, "--timeout must be above 0 seconds, and at most 1,000,000"),
    ({"seed": 2**64}, "--seed must be at least -2**63 and below 2**64, as torch takes them"),
    (
        {"strategy": "dp", "world_size": 3},
        "a batch of 64 images cannot be split evenly over 3 replicas: use --batch-size 66",
    ),
    (
        {"network": "foonet"},
        "foonet takes three numbers, not the images of shapes: leave out --data, or train lenet",
    ),
    ({"data": "points"}, "lenet takes images: choose --data shapes"),
    (
        {"strategy": "functional", "network": "resnet"},
        "--strategy functional runs the features and the classifier of a network separately, and resnet has "
        "no such parts: use lenet or vgg",
    ),
    (
        {"strategy": "manual", "network": "vgg"},
        "--strategy manual is hand-written for lenet, on bare tensors: it cannot train vgg",
    ),
    (
        {"strategy": "manual", "optimizer": "adamw"},
        "--strategy manual has its own hand-written SGD: leave out --optimizer adamw",
    ),
    ({"strategy": "manual", "amp": "bf16"}, "--strategy manual is bare tensors and float32: leave out --amp bf16"),
    ({"strategy": "manual", "ema": True}, "--strategy manual is bare tensors and float32: leave out --ema"),
    (
        {"strategy": "exact", "network": "resnet"},
        "--strategy exact cannot train resnet: batch norm uses all images that a worker sees, so its result "
        "depends on their number; use lenet or vgg",
    ),
    (
        {"strategy": "exact", "batch_size": 20},
        "--strategy exact cuts a batch into 8 micro-shards: --batch-size must be a multiple of that",
    ),
    (
        {"strategy": "exact", "amp": "fp16"},
        "--strategy exact promises the same bits on any number of workers: leave out --amp fp16",
    ),
    ({"device": "xla", "amp": "fp16"}, "--amp fp16 is for GPUs: XLA devices have --amp bf16"),
    ({"device": "mps", "dtype": "float64"}, "MPS devices have no float64: train on the CPU"),
    (
        {"strategy": "dp", "compile": True},
        "--compile works with single, ddp and fsdp: the replicas of dp are made again in every step",
    ),
]


@pytest.mark.parametrize(("choices", "sentence"), REFUSED, ids=[str(choices) for choices, _ in REFUSED])
def test_what_makes_no_sense_is_refused_with_what_would(choices, sentence):
    """One sentence: what does not go together, and what to choose."""
    with pytest.raises(UsageError) as error:
        require_choices(replace(RunConfig(), **choices))
    assert error.value.message == sentence


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_trains_the_default_network(strategy):
    """No strategy is refused with nothing else chosen."""
    require_choices(RunConfig(strategy=strategy))


def test_exact_keeps_an_average():
    """An average of exact weights is exact."""
    require_choices(RunConfig(strategy="exact", ema=True))
