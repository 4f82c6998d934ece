"""X: what is said of checkpoints in several files, over files and folders that torch itself wrote."""

from __future__ import annotations

import os
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

from ckptdoctor.examine.file import check
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import T
from tests.rules.examined import found
from tests.rules.nouns import findings


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """A process group of one."""
    store = tmp_path_factory.mktemp("store") / "file"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
        yield
        dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_real_dtensors(group, tmp_path):
    """A mesh of one process has all of every tensor."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (1,))
    spread = {"w": distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)]), "b": distribute_tensor(torch.ones(4), mesh)}
    torch.save({**spread, "r": distribute_tensor(torch.ones(2), mesh, [Replicate()])}, tmp_path / "model.pt")
    (finding,) = found(tmp_path / "model.pt", "X810")
    assert finding.message == "3 tensors are DTensors, with all of their elements here"


@pytest.mark.filterwarnings("ignore")
def test_real_sharded_tensors(group, tmp_path):
    """What FSDP's first version saved as it was."""
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec

    torch.save({"w": sharded_tensor.rand(ChunkShardingSpec(0, ["rank:0/cpu"]), 4, 2)}, tmp_path / "model.pt")
    (finding,) = found(tmp_path / "model.pt", "X811")
    assert [path[-1] for path in finding.keys] == ["w"]


def test_a_real_distributed_checkpoint(tmp_path):
    """It is information, and nothing else is wrong with it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"a.weight": torch.ones(2, 2), "a.bias": torch.ones(2)}, checkpoint_id=tmp_path / "d", no_dist=True)
    report = check(str(tmp_path / "d"))
    assert [(each.code, each.severity) for each in report.findings] == [("X809", Severity.INFO)]


def test_without_its_metadata_it_is_an_error(tmp_path):
    """The advice is what the container says."""
    (tmp_path / "__0_0.distcp").write_bytes(b"")
    (finding,) = check(str(tmp_path)).findings
    assert (finding.code, finding.severity) == ("X801", Severity.ERROR)
    assert "begins with a dot" in finding.advice


def test_a_folder_with_link_to_nothing(tmp_path):
    """A link that leads to no file is a missing shard."""
    save_file({"a.weight": torch.ones(2)}, tmp_path / "model-00001-of-00002.safetensors", {"format": "pt"})
    os.symlink(tmp_path / "gone", tmp_path / "model-00002-of-00002.safetensors")
    (finding,) = check(str(tmp_path)).findings
    assert finding.code == "X801"


@pytest.mark.parametrize("name", ["consolidated.00.pth", "model_part-0.pt"])
def test_slices(name, tmp_path):
    """Files that are called alike, but for the number, are slices of one model."""
    torch.save({"w": torch.ones(2)}, tmp_path / name)
    assert found(tmp_path / name, "X802") == []
    torch.save({"w": torch.ones(2)}, tmp_path / name.replace("0.p", "1.p"))
    (finding,) = found(tmp_path / name, "X802")
    assert "split into 2" in finding.message


def test_a_folder_for_each_rank(tmp_path):
    """Files that are called alike, in folders that are called by ranks; adapters of several ranks are no such thing."""
    inner = ("attn.q.weight", "attn.k.weight", "mlp.up.weight", "mlp.down.weight")
    for rank in (0, 1, 2):
        (tmp_path / f"rank_{rank}").mkdir()
        stage = {f"layers.{4 * rank + number}.{name}": torch.ones(2) for number in range(4) for name in inner}
        torch.save(stage, tmp_path / f"rank_{rank}" / "model.pt")
    (finding,) = found(tmp_path / "rank_1" / "model.pt", "X812")
    assert finding.message == "this is the file of rank 1, and those of 2 others are in the folders next to its own"
    assert finding.severity is Severity.WARNING
    os.rename(tmp_path / "rank_0", tmp_path / "rank_8")
    assert found(tmp_path / "rank_1" / "model.pt", "X812") == []


def test_a_duplicate_of_another_kind(tmp_path):
    """The finding says where two files have different tensors of one name."""
    save_file({"a": torch.ones(2), "b": torch.ones(2)}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"a": torch.ones(2), "b": torch.ones(3)}, tmp_path / "model-00002-of-00002.safetensors")
    (finding,) = found(tmp_path, "X806")
    assert finding.message.endswith("both hold a, b, with another dtype or shape in each: b")


def test_shards_that_are_sorted_by_name_have_gaps(tmp_path):
    """A shard by itself says nothing of its layers."""
    inner = ("attn.q.weight", "attn.k.weight", "mlp.up.weight", "mlp.down.weight")
    model = {f"layers.{number}.{name}": torch.ones(2) for number in (0, 1, 10, 11, 2, 3, 4, 5, 6) for name in inner}
    save_file(model, tmp_path / "model-00001-of-00002.safetensors", {"format": "pt"})
    assert found(tmp_path / "model-00001-of-00002.safetensors", "X813") == []
    save_file(model, tmp_path / "model.safetensors", {"format": "pt"})
    (finding,) = found(tmp_path / "model.safetensors", "X813")
    assert finding.message == "layers go from 0 to 11, but 7, 8, 9 are missing"


@pytest.mark.parametrize(
    "name", ["layers", "layer", "blocks", "block", "h", "decoder_layers", "encoder_layers", "transformer_blocks"]
)
def test_every_list_of_layers_is_looked_at(name):
    """What models call such a list is seen at first sight, or the rule would not be asked."""
    inner = ("attn.q.weight", "attn.k.weight", "mlp.up.weight", "mlp.down.weight")
    model = {f"{name}.{number}.{each}": T((2,)) for number in (0, 1, 2, 4, 5) for each in inner}
    (finding,) = findings("X813", model)
    assert finding.message == f"{name} go from 0 to 5, but 3 is missing"
