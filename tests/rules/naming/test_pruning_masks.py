"""N429: what ``prune.remove`` would have written, bit for bit, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils import prune

from tests.commands import run_here
from tests.repair.arranging import loaded, same

PLACES = [
    *(("fc", "weight"), ("fc", "bias"), ("conv", "weight"), ("up", "weight"), ("rnn", "weight_hh_l0")),
    *(("rnn", "bias_ih_l0"), ("norm", "weight"), ("", "scale")),
]


class Net(nn.Module):
    """Parameters of several kinds and names."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.fc, self.conv, self.up = nn.Linear(6, 5), nn.Conv2d(3, 4, 3), nn.ConvTranspose1d(2, 3, 2)
        self.rnn, self.norm = nn.LSTM(4, 4), nn.LayerNorm(6)
        self.scale = nn.Parameter(torch.ones(3))
        self.to(dtype)


def pruned(dtype: torch.dtype = torch.float32, masks: torch.dtype | None = None):
    """The state dict of a pruned model, that of the model before, and that after ``prune.remove``."""
    torch.manual_seed(0)
    net = Net(dtype)
    plain = {key: value.clone() for key, value in net.state_dict().items()}
    for module, name in PLACES:
        prune.random_unstructured(net.get_submodule(module), name, 0.5)
    odd = net.fc.weight_orig
    with torch.no_grad():
        odd[0] = torch.tensor([float("nan"), float("inf"), -0.0, 0.0, -1.0, float("-inf")])
        net.fc.weight_mask[0] = torch.tensor([0, 0, 1, 0, 0, 1])
        odd[1], net.fc.weight_mask[1] = -2.5, 1
        net.conv.weight_mask.zero_()
    if masks is not None:
        for module, name in PLACES:
            owner = net.get_submodule(module)
            setattr(owner, f"{name}_mask", getattr(owner, f"{name}_mask").to(masks))
    state = {key: value.clone() for key, value in net.state_dict().items()}
    for module, name in PLACES:
        prune.remove(net.get_submodule(module), name)
    return state, plain, {key: value.clone() for key, value in net.state_dict().items()}


def saved(state: dict[str, torch.Tensor], path: Path) -> Path:
    """The file, as its suffix says."""
    if path.suffix == ".safetensors":
        save_file({key: value.contiguous() for key, value in state.items()}, path)
    else:
        torch.save(state, path)
    return path


def are_the_same(path: Path, wanted: dict[str, torch.Tensor]) -> None:
    """Every key, dtype, shape and bit; which of several NaNs a NaN is no matter."""
    found = loaded(path)
    assert set(found) == set(wanted)
    for key, value in wanted.items():
        assert torch.equal(found[key].isnan(), value.isnan()), key
        assert same(found[key].where(~value.isnan(), 0), value.where(~value.isnan(), 0)), key


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_the_product_is_what_torch_removes_to(tmp_path: Path, suffix: str, dtype: torch.dtype):
    """Zeros keep their signs, NaN and infinity times zero are NaN, and every name of a parameter will do."""
    state, plain, wanted = pruned(dtype)
    path, like = saved(state, tmp_path / f"m{suffix}"), saved(plain, tmp_path / f"like{suffix}")
    result = run_here("fix", path, "--auto", "--like", like, "-o", tmp_path / f"out{suffix}", cwd=tmp_path)
    assert result.returncode == 0, result.stdout.decode()
    assert b"computed twice with the same result" in result.stdout
    are_the_same(tmp_path / f"out{suffix}", wanted)


@pytest.mark.parametrize("masks", [torch.bool, torch.uint8, torch.int64, torch.float64, torch.float16], ids=str)
def test_a_mask_of_another_dtype_is_cast_as_torch_casts_it(tmp_path: Path, masks: torch.dtype):
    """Without a target, too: the rule's code asks for it."""
    state, _, wanted = pruned(torch.float32, masks)
    path = saved({"state_dict": state, "epoch": 3}, tmp_path / "m.pt")
    result = run_here("fix", path, "--select", "N429", "--unsafe-fixes", "-o", tmp_path / "out.pt", cwd=tmp_path)
    assert result.returncode == 0, result.stdout.decode()
    contents = torch.load(tmp_path / "out.pt", weights_only=True)
    assert contents["epoch"] == 3
    torch.save(contents["state_dict"], tmp_path / "inner.pt")
    are_the_same(tmp_path / "inner.pt", wanted)


def test_without_a_target_nothing_is_computed_unasked(tmp_path: Path):
    """A pruned model loads its own checkpoint: it is worth knowing, and no fault."""
    path = saved(pruned()[0], tmp_path / "m.pt")
    assert run_here("check", path, cwd=tmp_path).returncode == 0
    result = run_here("fix", path, cwd=tmp_path)
    assert not (tmp_path / "m.fixed.pt").exists(), result.stdout.decode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda state: state.pop("fc.weight_mask"),
            "Only the mask of fc.weight, which is not here, shows what was pruned",
        ),
        (lambda state: state.pop("fc.weight_orig"), "Only the mask of fc.weight is here, not its values"),
        (lambda state: state.update({"fc.weight_mask": torch.ones(5)}), "float32 [5, 6] and float32 [5]"),
    ],
    ids=["no mask", "no original", "another shape"],
)
def test_half_of_a_pair_is_named_and_nothing_is_written(tmp_path: Path, change, said: str):
    """The finding says which part is missing; a repair towards the plain model is refused."""
    state, plain, _ = pruned()
    change(state)
    path, like = saved(state, tmp_path / "m.pt"), saved(plain, tmp_path / "like.pt")
    told = run_here("check", path, "--like", like, cwd=tmp_path).stdout.decode()
    assert said in " ".join(told.split())
    for mode in ([], ["--unsafe-fixes"]):
        result = run_here("fix", path, "--auto", "--like", like, *mode, cwd=tmp_path)
        assert result.returncode == 1
        assert not (tmp_path / "m.fixed.pt").exists()


def test_a_mask_that_the_target_wants_is_left_alone(tmp_path: Path):
    """``weight_mask`` is a buffer of the target's own layer: the original beside it is no pruned weight."""
    state = {"fc.weight_orig": torch.randn(3, 4), "fc.weight_mask": torch.ones(3, 4)}
    path = saved(state, tmp_path / "m.pt")
    like = saved({"fc.weight": torch.zeros(3, 4), "fc.weight_mask": torch.ones(3, 4)}, tmp_path / "like.pt")
    result = run_here("fix", path, "--auto", "--like", like, "--unsafe-fixes", cwd=tmp_path)
    assert result.returncode == 1
    assert not (tmp_path / "m.fixed.pt").exists()
