"""The work of the ranks of these tests: steps on given batches, each rank on its share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from ckptdoctor.trainer.networks import build
from ckptdoctor.trainer.strategies.make import make
from tests.trainer.strategies.steps import CLASSES, SHAPES, batch

STEPS = 3

# name → the choices of a run in this world
RUNS = {
    "ddp": {"strategy": "ddp"},
    "ddp-float64": {"strategy": "ddp", "dtype": "float64"},
    "ddp-resnet": {"strategy": "ddp", "network": "resnet"},
    "fsdp": {"strategy": "fsdp"},
    "fsdp-float64": {"strategy": "fsdp", "dtype": "float64"},
    "fsdp-everything": {"strategy": "fsdp", "ema": True, "amp": "fp16", "optimizer": "adamw", "lr": 0.001},
    "fsdp-foonet": {"strategy": "fsdp", "network": "foonet"},
}


def many(config, team, stop):
    """One strategy after the other in the same world; the first rank writes what each came to."""
    for name, choices in RUNS.items():
        trained = steps(replace(config, **choices), team)
        write(Path(config.out) / f"{name}.pt", trained, team)
        if choices["strategy"] == "fsdp":
            assert_it_goes_on(trained, team)


def exact(config, team, stop):
    """Exact steps with dropout and an average."""
    trained = steps(replace(config, strategy="exact", network="vgg", ema=True), team)
    write(Path(config.out) / "exact.pt", trained, team)


def steps(config, team):
    """A strategy of this world after some steps."""
    model = build(config, SHAPES[config.network], CLASSES.get(config.network, 10))
    trained = make(config, team, model)
    for number in range(STEPS):
        trained.begin(0, number)
        step(trained, team, number)
    return trained


def step(trained, team, number):
    """One step on this rank's share."""
    inputs, labels = batch(trained.config, number)
    trained.step(inputs.chunk(team.world_size)[team.rank], labels.chunk(team.world_size)[team.rank])


def state(trained):
    """All that a checkpoint would hold of it."""
    return {
        "weights": trained.state_dict(),
        "wrapped": list(trained.wrapped_state_dict()),
        "optimizer": trained.optimizer_state_dict(),
        "ema": trained.ema_state_dict(),
    }


def write(path, trained, team):
    """Every rank gathers, the first one writes."""
    gathered = state(trained)
    if team.is_first:
        torch.save(gathered, path)


def assert_it_goes_on(trained, team):
    """A sharded strategy that takes over its own state takes the same next step."""
    saved = state(trained)
    step(trained, team, STEPS)
    after = trained.state_dict()
    trained.load(saved["weights"], saved["optimizer"], saved["ema"])
    step(trained, team, STEPS)
    again = trained.state_dict()
    assert all(torch.equal(after[key], again[key]) for key in after)
    assert any(not torch.equal(after[key], saved["weights"][key]) for key in after)
