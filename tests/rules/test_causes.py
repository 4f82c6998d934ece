"""Causes that a finding must not name: real files that look like something else."""

from __future__ import annotations

import functools
import os

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharded_tensor.metadata import MEM_FORMAT_ENCODING
from torch.distributed._shard.sharding_spec import ChunkShardingSpec

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import check


def findings(path, **settings):
    """What check finds, by code."""
    return {each.code: each for each in check(str(path), Settings(**settings)).findings}


def saved(contents, path):
    """The path, with the contents saved there."""
    torch.save(contents, path)
    return path


class Block(nn.Module):
    """A decoder's layer."""

    def __init__(self):
        super().__init__()
        for name, rows, columns in (("wq", 32, 32), ("wk", 8, 32), ("wo", 32, 32), ("w1", 64, 32), ("w2", 32, 64)):
            setattr(self, name, nn.Linear(columns, rows, bias=False))
        self.norm = nn.LayerNorm(32)


class Decoder(nn.Module):
    """A small one."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 32)
        self.layers = nn.ModuleList([Block() for _ in range(3)])
        self.head = nn.Linear(32, 40, bias=False)


def rank(state, number, ranks):
    """What one rank keeps: rows of what leads into a layer and of the vocabulary, columns of what leads out of it."""
    sides = {"wq": 0, "wk": 0, "wo": 1, "w1": 0, "w2": 1, "embed": 0, "head": 0}
    found = {}
    for key, value in state.items():
        side = sides.get(key.split(".")[-2])
        found[key] = value if side is None else value.chunk(ranks, side)[number].clone()
    return found


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_the_part_of_a_rank_is_no_other_model(ranks, prefix, tmp_path):
    """W311 is silent: the shapes say that the file is a slice of this very model."""
    state = Decoder().state_dict()
    part = {prefix + key: value for key, value in rank(state, 1, ranks).items()}
    path, like = saved(part, tmp_path / "rank.pt"), saved(state, tmp_path / "like.pt")
    found = findings(path, like=str(like))
    assert "W311" not in found
    assert {"S512", "X802"}.intersection(found)


@pytest.mark.parametrize("prefix", ["backbone.", "net.", "generator."])
def test_a_wrapper_is_not_taken_for_lightning(prefix, tmp_path):
    """Only a file that says so is from Lightning; neither the cause nor the rule's name says it of others."""
    state = Decoder().state_dict()
    path = saved({prefix + key: value for key, value in state.items()}, tmp_path / "a.pt")
    found = findings(path, like=str(saved(state, tmp_path / "like.pt")))["N409"]
    assert "lightning" not in f"{found.name} {found.message} {found.cause} {found.advice}".lower()


def test_a_pairing_by_order_is_no_fact(tmp_path):
    """Parts of one shape with names that tell nothing: the finding says that only their order pairs them."""
    old = {f"{part}.{n}.weight": torch.rand(4 + n, 4) for n in range(4) for part in ("rho", "tau")}
    new = {f"{part}.{n}.weight": torch.rand(4 + n, 4) for n in range(4) for part in ("left", "right")}
    found = findings(saved(old, tmp_path / "a.pt"), like=str(saved(new, tmp_path / "like.pt")))["N423"]
    assert found.fix is None
    assert "may have another name" in found.message
    assert "proves nothing" in found.cause
    assert "The same parts" not in found.cause


@pytest.mark.parametrize("cut", [10, 600])
def test_nothing_is_said_of_the_layout_of_a_file_that_is_cut_off(cut, tmp_path):
    """M971 and M978 are of no account where values are missing, and would be refused."""
    path = tmp_path / "model.safetensors"
    save_file({"a.weight": torch.rand(20, 10), "b.weight": torch.rand(7)}, path)
    os.truncate(path, path.stat().st_size - cut)
    found = findings(path)
    assert "F007" in found
    assert {"M971", "M978"}.isdisjoint(found)
    assert not any(each.fix for each in found.values())


@pytest.fixture
def group():
    """A group of one process, for tensors that are shared out."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:Please use DTensor:FutureWarning")
def test_sharded_tensors_of_torch_run_nothing(group, tmp_path):
    """A ShardedTensor is torch's own: P206 speaks of what can run commands."""
    tensor = sharded_tensor.ones(ChunkShardingSpec(dim=0, placements=["rank:0/cpu"]), 8, 4)
    found = findings(saved({"w": tensor}, tmp_path / "a.pt"))
    assert "X811" in found
    assert "P206" not in found


@pytest.mark.parametrize("attribute", ["__class__", "mro", "TORCH_CONTIGUOUS_FORMAT.value"])
def test_other_attributes_of_an_enum_are_no_members(attribute, tmp_path):
    """A call of getattr is only taken for harmless where it looks up a member by its name."""

    class Looks:
        def __reduce__(self):
            return getattr, (MEM_FORMAT_ENCODING, attribute)

    assert "P206" in findings(saved({"w": torch.rand(2), "x": Looks()}, tmp_path / "a.pt"))


@pytest.mark.parametrize("function", [print, os.getcwd, torch.nn.functional.relu, len])
def test_a_function_is_never_allowed(function, tmp_path):
    """torch would call it: add_safe_globals is advised of classes alone."""
    path = saved({"w": torch.rand(3), "act": functools.partial(function)}, tmp_path / "a.pt")
    told = [f"{each.advice} {each.cause} {' '.join(each.commands)}" for each in findings(path).values()]
    assert not any("add_safe_globals" in each for each in told)


@pytest.mark.parametrize("name", ["low", "action_high", "upper_bound", "min_value", "act_max", "causal_mask", "best"])
def test_bounds_may_be_infinite(name, tmp_path):
    """What has no bound says so; a weight of the same name says no such thing."""
    model = nn.Linear(4, 4)
    model.register_buffer(name, torch.full((4,), float("-inf")))
    assert "V651" not in findings(saved(model.state_dict(), tmp_path / "a.pt"), deep=True)
    worse = {f"{name}.weight": torch.full((4, 4), float("inf"))}
    assert "V651" in findings(saved(worse, tmp_path / "b.pt"), deep=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_layer_after_a_few_steps_was_trained(dtype, tmp_path):
    """V654 is about layers as torch.nn makes them: a few small steps make another of them, in a narrow dtype too."""
    torch.manual_seed(0)
    model = nn.Linear(256, 256)
    path = saved(model.to(dtype).state_dict(), tmp_path / "fresh.pt")
    assert "V654" in findings(path, deep=True)
    model = nn.Linear(256, 256)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-4)
    for _ in range(8):
        model(torch.randn(16, 256)).square().sum().backward()
        optimizer.step()
    assert "V654" not in findings(saved(model.to(dtype).state_dict(), tmp_path / "trained.pt"), deep=True)


def test_a_factor_of_each_channel_is_no_layer(tmp_path):
    """Trained or not, it may be 1 throughout: norms over images hold it as [C, 1, 1]."""
    state = {"ln.weight": torch.ones(64, 1, 1), "fc.weight": torch.randn(8, 8)}
    assert "V654" not in findings(saved(state, tmp_path / "a.pt"), deep=True)
