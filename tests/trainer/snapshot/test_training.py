"""What is in ``training.pt``."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch

from ckptdoctor.trainer.config import Config
from ckptdoctor.trainer.snapshot.position import Position
from ckptdoctor.trainer.snapshot.save import save
from ckptdoctor.trainer.snapshot.training import KEYS
from tests.trainer.snapshot.toy import ALONE, Toy, train

PLAIN = (dict, OrderedDict, list, tuple, str, int, float, bool, type(None), torch.Tensor)


@pytest.fixture
def saved(tmp_path):
    """What torch reads, with its safe reader, of a run that has everything."""
    config = Config(out=str(tmp_path), data_dir=str(tmp_path), amp="fp16", ema=True, optimizer="adamw", lr=0.25)
    strategy = Toy(config)
    train(strategy, 2)
    folder = save(config, strategy, ALONE, Position(4, 2, 0.5))
    return strategy, torch.load(folder / "training.pt", weights_only=True)


def test_only_plain_data(saved):
    """Everything is plain data and tensors, all the way down."""
    todo = [saved[1]]
    while todo:
        value = todo.pop()
        assert type(value) in PLAIN
        if isinstance(value, dict):
            todo += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple)):
            todo += value


def test_contents(saved):
    """Position, network, weights under bare keys, optimizer, schedule, scaler and average are there."""
    strategy, contents = saved
    assert tuple(contents) == KEYS
    assert [contents[key] for key in KEYS[:6]] == [4, 2, 0.5, "lenet", "single", 1]
    assert list(contents["state_dict"]) == list(strategy.model.state_dict())
    assert set(contents["optimizer"]["state"]) == set(range(6))
    assert contents["scheduler"] == {"last_epoch": 4, "base_lr": 0.25}
    assert contents["scaler"]["scale"] == 1024.0
    assert contents["ema"]["n_averaged"] == 2
    assert list(contents["ema"]["state_dict"]) == list(contents["state_dict"])


def test_config_without_the_place(saved):
    """The choices of the run are there, but not where it ran."""
    config = saved[1]["config"]
    assert (config["network"], config["optimizer"], config["save"]) == ("lenet", "adamw", ["plain"])
    assert not {"out", "data_dir", "resume"} & set(config)


def test_rng(saved):
    """Each rank's generators are there."""
    (state,) = saved[1]["rng"]
    assert (state["cpu"].dtype, state["cpu"].shape, state["cuda"], state["mps"]) == (torch.uint8, (5056,), None, None)
    assert len(state["python"][1]) == 625


def test_what_stays_on_the_cpu(tmp_path):
    """In a run tagged for a GPU generators and step counters keep the tag of the CPU, everything else has the GPU's."""
    config = Config(out=str(tmp_path), ema=True, optimizer="adamw", tag_device="cuda:0")
    strategy = Toy(config)
    train(strategy, 1)
    path = save(config, strategy, ALONE, Position(1)) / "training.pt"
    tags = []
    loaded = torch.load(path, map_location=lambda storage, tag: (tags.append(tag), storage)[1])
    steps = len(loaded["optimizer"]["state"])
    tensors = 2 * len(loaded["state_dict"]) + 2 * steps
    assert (tags.count("cpu"), tags.count("cuda:0"), len(tags)) == (steps + 1, tensors, steps + 1 + tensors)


def test_bare_tensors_have_no_metadata(tmp_path):
    """A run without a module saves a plain dict: there are no module versions to write down."""
    config = Config(out=str(tmp_path), strategy="manual", save=("plain", "wrapped", "safetensors", "dcp"))
    strategy = Toy(config)
    strategy.model_of_the_test, strategy.model, strategy.wrapped = strategy.model, None, None
    strategy.state_dict = strategy.wrapped_state_dict = lambda: {"w": torch.ones(2)}
    folder = save(config, strategy, ALONE, Position(1))
    assert type(torch.load(folder / "model.pt")) is dict
    assert type(torch.load(folder / "training.pt")["state_dict"]) is dict
