"""DTensors whose local part is all of them, in files that torch itself wrote in a process group of one."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from ckptdoctor.converting.conversion import convert
from ckptdoctor.converting.request import ConvertRequest
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.errors import RefusedError
from ckptdoctor.examine.file import check
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.rules.kit.sharded_samples import wrapped_tensor
from tests.rules.examined import found

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    """A mesh of one process."""
    from torch.distributed.device_mesh import init_device_mesh

    store = tmp_path_factory.mktemp("store") / "file"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
        yield init_device_mesh("cpu", (1,))
        dist.destroy_process_group()


def fixed(path):
    """The file after the repair of X810 alone."""
    return repair(plan(FixRequest(str(path), selection=Selection(("X810",)))))


def local(value):
    """The same with plain tensors."""
    if isinstance(value, dict):
        return {key: local(item) for key, item in value.items()}
    return value.to_local().detach() if hasattr(value, "to_local") else value


def assert_equal(one, other):
    """Dicts of tensors, and whatever else is in them."""
    assert one.keys() == other.keys()
    for key, value in other.items():
        if isinstance(value, dict):
            assert_equal(one[key], value)
        elif isinstance(value, torch.Tensor):
            assert type(one[key]) is torch.Tensor
            assert torch.equal(one[key], value)
        else:
            assert one[key] == value


def test_a_model_under_fsdp(mesh, tmp_path):
    """Its state dict and its optimizer's are plain tensors afterwards, which torch.load takes by itself."""
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    torch.save(saved, tmp_path / "model.pt")
    (finding,) = found(tmp_path / "model.pt", "X810")
    assert finding.fix.safety.value == "safe"
    outcome = fixed(tmp_path / "model.pt")
    loaded = torch.load(outcome.plan.output, weights_only=True)
    assert_equal(loaded, local(saved))
    assert loaded["model"]._metadata == saved["model"]._metadata
    assert {"X810", "P201"}.isdisjoint(each.code for each in check(outcome.plan.output).findings)


def spread(mesh):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    whole = torch.arange(8.0).reshape(4, 2)
    return {
        "split": distribute_tensor(whole, mesh, [Shard(1)]),
        "copied": distribute_tensor(whole + 1, mesh, [Replicate()]),
        "parameter": torch.nn.Parameter(distribute_tensor(whole + 2, mesh, [Replicate()])),
        "plain": whole + 3,
    }


def test_every_placement(mesh, tmp_path):
    """Split over one, copied to one, and parameters."""
    saved = spread(mesh)
    torch.save(saved, tmp_path / "model.pt")
    assert_equal(torch.load(fixed(tmp_path / "model.pt").plan.output, weights_only=True), local(saved))


def test_ties_are_kept(mesh, tmp_path):
    """Two names of one DTensor stay one tensor, and so does what shares its memory."""
    one = spread(mesh)["copied"]
    torch.save({"a": one, "b": one, "local": one.to_local(), "part": one.to_local()[1]}, tmp_path / "model.pt")
    loaded = torch.load(fixed(tmp_path / "model.pt").plan.output, weights_only=True)
    assert len({each.untyped_storage().data_ptr() for each in loaded.values()}) == 1
    assert torch.equal(loaded["part"], loaded["a"][1])


def test_the_legacy_format(mesh, tmp_path):
    """Files from before archives too."""
    saved = spread(mesh)
    torch.save(saved, tmp_path / "model.pt", _use_new_zipfile_serialization=False)
    assert_equal(torch.load(fixed(tmp_path / "model.pt").plan.output, weights_only=True), local(saved))


@pytest.mark.parametrize("name", ["o.pt", "o.safetensors"])
@pytest.mark.parametrize("legacy", [False, True])
def test_conversions_unwrap(name, legacy, mesh, tmp_path):
    """No container gets DTensors where plain tensors say the same."""
    saved = spread(mesh)
    torch.save(saved, tmp_path / "model.pt", _use_new_zipfile_serialization=not legacy)
    convert(ConvertRequest((str(tmp_path / "model.pt"),), str(tmp_path / name)))
    loaded = load_file(tmp_path / name) if name.endswith("safetensors") else torch.load(tmp_path / name)
    assert_equal(loaded, local(saved))


def test_a_part_is_refused(tmp_path):
    """What other processes have is not in the file: no repair, and no conversion."""
    (tmp_path / "model.pt").write_bytes(wrapped_tensor("torch.distributed.tensor", "DTensor", local=2))
    (finding,) = found(tmp_path / "model.pt", "X810")
    assert finding.fix is None
    assert fixed(tmp_path / "model.pt").written is None
    with pytest.raises(RefusedError, match="a DTensor, and other processes have parts of it"):
        convert(ConvertRequest((str(tmp_path / "model.pt"),), str(tmp_path / "o.safetensors")))


def test_a_summand_is_refused(mesh, tmp_path):
    """A local part of the right shape may be one of several summands."""
    from torch.distributed.tensor import DTensor, Partial

    torch.save({"w": DTensor.from_local(torch.ones(2), mesh, [Partial()])}, tmp_path / "model.pt")
    (finding,) = found(tmp_path / "model.pt", "X810")
    assert "only one process's part" in finding.message
    assert finding.fix is None
