"""``--dtype``: what is cast, what that loses, and what is refused."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.edits import Safety
from ckptdoctor.errors import RefusedError, UsageError
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest, cast_target
from tests.repair.checkpoints import save


def trained() -> dict[str, object]:
    """A model with buffers, after a step of Adam, and the state of a random generator."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 8)).square().sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state(), "epoch": 3}


def test_weights_are_cast_and_nothing_else(tmp_path):
    """Parameters and floating-point buffers; counters, optimizers and random generators stay."""
    old = trained()
    path = save(old, tmp_path / "m.pt")
    outcome = repair(plan(FixRequest(str(path), dtype="bfloat16")))
    found = torch.load(outcome.plan.output, weights_only=True)
    for key, tensor in old["model"].items():
        wanted = tensor.bfloat16() if tensor.is_floating_point() else tensor
        assert found["model"][key].dtype == wanted.dtype
        assert torch.equal(found["model"][key], wanted)
    for number, state in old["optimizer"]["state"].items():
        assert all(torch.equal(state[key], found["optimizer"]["state"][number][key]) for key in state)
    assert torch.equal(old["rng"], found["rng"])


def test_the_loss_is_told(tmp_path):
    """How many values were rounded, and by how much; the step is not safe."""
    path = save({"w": torch.tensor([1.0, 1.001, 1e-30]), "v": torch.tensor([0.1])}, tmp_path / "m.pt")
    (step,) = plan(FixRequest(str(path), dtype="float16")).steps
    assert step.safety is Safety.UNSAFE
    loss = step.changes[-1]
    assert loss.kind == "cast-loss"
    assert {noun: number for number, noun in loss.counts} == {"value": 4, "value rounded": 3, "value made 0": 1}
    assert loss.pairs == (("largest relative error", "0.02%"),)


def test_widening_is_safe(tmp_path):
    """No value is read for it, as none can change."""
    path = save({"w": torch.randn(3).half()}, tmp_path / "m.pt")
    (step,) = plan(FixRequest(str(path), dtype="float32")).steps
    assert step.safety is Safety.SAFE
    assert [change.kind for change in step.changes] == ["cast"]


def test_nothing_to_cast(tmp_path):
    """All of it is of this dtype already."""
    path = save({"w": torch.randn(3).half()}, tmp_path / "m.pt")
    assert plan(FixRequest(str(path), dtype="float16")).recipe is None


def test_overflow_is_refused(tmp_path):
    """With the tensor and the way out; --unsafe-fixes does it all the same."""
    path = save({"bn.weight": torch.ones(2), "bn.running_var": torch.tensor([1e6, 2.0])}, tmp_path / "m.pt")
    with pytest.raises(RefusedError) as error:
        plan(FixRequest(str(path), dtype="float16"))
    assert "1 value becomes infinite: float16 ends at 65,504" in error.value.message
    assert "bn.running_var (up to 1,000,000)" in error.value.message
    planned = plan(FixRequest(str(path), dtype="float16", unsafe=True))
    assert (1, "value made infinite") in planned.steps[0].changes[-1].counts
    found = torch.load(repair(planned).plan.output)
    assert found["bn.running_var"].tolist() == [float("inf"), 2.0]
    plan(FixRequest(str(path), dtype="bfloat16"))


def test_many_small_tensors_lose_what_they_lose_one_by_one(tmp_path):
    """They are measured together, of whatever dtypes they are, in files of either kind."""
    torch.manual_seed(5)
    kinds = (torch.float32, torch.float64, torch.bfloat16)
    old = {
        f"layers.{each}.w": torch.randn(1 + each % 7, dtype=kinds[each // 20 % 3]) * 10.0 ** (each % 9 - 7)
        for each in range(400)
    }
    old["large"] = torch.randn(30_000)
    narrowed = [each for each in old.values() if each.dtype is not torch.float16]
    rounded = sum(int((each.half().double() != each.double()).sum()) for each in narrowed)
    zero = sum(int(((each.half() == 0) & (each != 0)).sum()) for each in narrowed)
    save_file(old, tmp_path / "m.safetensors")
    for path in (save(old, tmp_path / "m.pt"), tmp_path / "m.safetensors"):
        planned = plan(FixRequest(str(path), dtype="float16", unsafe=True))
        counts = {noun: number for number, noun in planned.steps[0].changes[-1].counts}
        assert counts["value"] == sum(each.numel() for each in narrowed)
        assert (counts["value rounded"], counts["value made 0"]) == (rounded, zero)


def test_of_many_small_tensors_those_that_overflow_are_named(tmp_path):
    """By their own names, and no others."""
    old = {f"layers.{each}.w": torch.full((3,), 1e6 if each in (7, 90) else 1.0) for each in range(100)}
    with pytest.raises(RefusedError) as error:
        plan(FixRequest(str(save(old, tmp_path / "m.pt")), dtype="float16"))
    assert "6 values become infinite" in error.value.message
    assert "in layers.90.w (up to 1,000,000), layers.7.w (up to 1,000,000)\n" in error.value.message


def test_quantised_layers_stay(tmp_path):
    """Scales and packed weights mean nothing in another dtype; what is beside them is cast."""
    path = tmp_path / "m.safetensors"
    old = {
        "a.weight": torch.randn(16, 16).to(torch.float8_e4m3fn),
        "a.weight_scale": torch.tensor(0.5),
        "b.weight": torch.randn(4, 4),
    }
    save_file(old, path)
    (step,) = plan(FixRequest(str(path), dtype="bfloat16")).steps
    assert [edit.paths for edit in step.edits] == [(("b.weight",),)]


def test_float8_without_scales_is_cast(tmp_path):
    """Those are the weights themselves, rounded."""
    path = tmp_path / "m.safetensors"
    weight = torch.randn(16, 16).to(torch.float8_e4m3fn)
    save_file({"a.weight": weight}, path, {"format": "pt"})
    outcome = repair(plan(FixRequest(str(path), dtype="bfloat16")))
    from safetensors.torch import load_file

    assert torch.equal(load_file(outcome.plan.output)["a.weight"], weight.bfloat16())


def test_no_weights(tmp_path):
    """An optimizer alone has none."""
    path = save({"state": {}, "param_groups": [{"lr": 0.1, "params": []}]}, tmp_path / "m.pt")
    with pytest.raises(RefusedError, match="this file has none"):
        plan(FixRequest(str(path), dtype="float16"))


def test_big_endian_files_are_refused(tmp_path):
    """Their values would be read the wrong way round."""
    import zipfile

    path, other = save({"w": torch.randn(3)}, tmp_path / "m.pt"), tmp_path / "big.pt"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w") as new:
        for item in old.infolist():
            data = b"big" if item.filename.endswith("byteorder") else old.read(item)
            new.writestr(item.filename, data)
    with pytest.raises(RefusedError, match="big-endian"):
        plan(FixRequest(str(other), dtype="bfloat16", unsafe=True))


def test_wasted_precision_is_repaired(tmp_path):
    """``--select T554`` casts exactly the tensors that fit: casting back gives the same bytes."""
    weight = torch.randn(64, 64).bfloat16().float()
    path = save({"a.weight": weight, "n": torch.tensor(3)}, tmp_path / "m.pt")
    planned = plan(FixRequest(str(path), selection=Selection(("T554",))))
    (step,) = planned.steps
    assert (step.label, step.safety) == ("T554", Safety.SAFE)
    found = torch.load(repair(planned).plan.output)
    assert found["a.weight"].dtype is torch.bfloat16
    assert torch.equal(found["a.weight"].float(), weight)
    path = save({"a.weight": torch.randn(64, 64)}, path)
    assert plan(FixRequest(str(path), selection=Selection(("T554",)))).recipe is None


def test_names_of_dtypes():
    """Aliases, and what is refused with the names that there are."""
    assert cast_target("bf16") == "bfloat16"
    with pytest.raises(UsageError, match="float64, float32, float16, bfloat16"):
        cast_target("int4")


def test_python_casts_as_the_command_does(tmp_path):
    """``ckptdoctor.fix(path, dtype=…)`` takes the names that people use."""
    import ckptdoctor

    path = tmp_path / "model.pt"
    torch.save({"w": torch.randn(4, 3)}, path)
    made = torch.load(ckptdoctor.fix(path, dtype="half").output, weights_only=True)
    assert torch.equal(made["w"], torch.load(path, weights_only=True)["w"].half())


def test_float8_in_the_old_format_is_cast(tmp_path):
    """Its storages have no type there, are counted in bytes, and are read by torch from an archive only."""
    old = {"w": torch.randn(33).to(torch.float8_e4m3fn), "v": torch.randn(7)}
    path = tmp_path / "m.pt"
    torch.save(old, path, _use_new_zipfile_serialization=False)
    cast = repair(plan(FixRequest(str(path), dtype="bfloat16"))).plan.output
    archive = repair(plan(FixRequest(cast, selection=Selection(select=("C105",))))).plan.output
    found = torch.load(archive, weights_only=True)
    assert found["w"].dtype == found["v"].dtype == torch.bfloat16
    assert torch.equal(found["w"], old["w"].to(torch.bfloat16))
    assert torch.equal(found["v"], old["v"].to(torch.bfloat16))


def test_a_file_that_is_cut_off_is_refused_by_the_name_of_a_tensor(tmp_path):
    """What is missing cannot be measured."""
    path = tmp_path / "m.safetensors"
    save_file({"v": torch.randn(8), "w": torch.randn(64)}, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(RefusedError, match=r"^w is not completely in the file, so it cannot be cast"):
        plan(FixRequest(str(path), dtype="bfloat16"))
