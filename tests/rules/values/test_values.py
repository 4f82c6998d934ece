"""What rules say of values, through real files that torch wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from ckptdoctor.findings import Finding, Severity
from tests.rules.examined import found


def findings(folder: Path, contents: object, code: str) -> list[Finding]:
    """The findings of one rule in a file with these contents."""
    torch.save(contents, folder / "model.pt")
    return found(folder / "model.pt", code, deep=True)


def test_the_first_layer_is_named(tmp_path):
    """Counts of both kinds, and the first tensor in the order of the file."""
    state = {f"layers.{number}.weight": torch.randn(8, 8) for number in range(4)}
    state["layers.1.weight"][0, 0] = float("nan")
    state["layers.3.weight"][0, :3] = float("inf")
    (finding,) = findings(tmp_path, state, "V651")
    assert finding.message == "1 NaN and 3 infinities in 2 tensors; the first is layers.1.weight"
    assert finding.keys == (("layers.1.weight",), ("layers.3.weight",))
    assert "zeros" in finding.advice
    assert finding.fix is None


def test_the_copy_that_is_finite_is_named(tmp_path):
    """Raw weights beside their average: whichever is whole."""
    whole, sick = {"a.weight": torch.ones(3, 3)}, {"a.weight": torch.full((3, 3), float("nan"))}
    (finding,) = findings(tmp_path, {"model": whole, "model_ema": sick}, "V651")
    assert "The same network in model is finite: use it instead of model_ema" in finding.advice
    (finding,) = findings(tmp_path, {"model": sick, "model_ema": sick}, "V651")
    assert "Every copy of the network in this file is affected" in finding.advice


def test_the_state_of_an_optimizer_is_a_finding_of_its_own(tmp_path):
    """NaN in Adam's moments is O756's."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    optimizer.state[model.weight]["exp_avg"][0, 0] = float("nan")
    contents = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    assert findings(tmp_path, contents, "V651") == []
    (finding,) = findings(tmp_path, contents, "O756")
    assert finding.message.endswith("holds NaN or infinity: optimizer/state/0/exp_avg")


@pytest.mark.parametrize(
    "dtype", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
)
def test_nan_in_float8_is_found(tmp_path, dtype):
    """In every kind."""
    weight = torch.ones(8, 8)
    weight[5, 5] = float("nan")
    (finding,) = findings(tmp_path, {"a.weight": weight.to(getattr(torch, dtype))}, "V651")
    assert finding.message.startswith("1 NaN in 1 tensor")


def test_infinite_bounds_of_observers_are_meant(tmp_path):
    """As torch.ao.quantization begins."""
    state = {"a.weight": torch.randn(4, 4), "a.activation_post_process.min_val": torch.tensor(float("inf"))}
    assert findings(tmp_path, state, "V651") == []


def test_a_file_without_values(tmp_path):
    """Every tensor that a skip_data save leaves is zero, and that is one finding."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    with torch.serialization.skip_data():
        torch.save(model.state_dict(), tmp_path / "model.pt")
    (finding,) = found(tmp_path / "model.pt", "V653", deep=True)
    assert finding.message == "both weight tensors are all zeros; the first is 0.weight"


def test_layers_that_were_never_trained(tmp_path):
    """A head as torch.nn makes it beside a trained body; all of them fresh is only worth knowing."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"body": nn.Linear(64, 64), "conv": nn.Conv2d(16, 32, 3), "head": nn.Linear(64, 40)})
    (all_fresh,) = findings(tmp_path, model.state_dict(), "V654")
    assert (all_fresh.severity, len(all_fresh.keys)) == (Severity.INFO, 3)
    optimizer = torch.optim.SGD([*model["body"].parameters(), *model["conv"].parameters()], 0.05)
    loss = model["body"](torch.randn(8, 64)).square().sum() + model["conv"](torch.randn(2, 16, 8, 8)).square().sum()
    loss.backward()
    optimizer.step()
    (finding,) = findings(tmp_path, model.state_dict(), "V654")
    assert (finding.severity, finding.keys) == (Severity.WARNING, (("head.weight",),))


@pytest.mark.parametrize("make", [torch.randn, torch.rand, lambda *shape: torch.randn(*shape).clamp(-0.1, 0.1)])
def test_other_values_do_not_look_untrained(tmp_path, make):
    """Normal values, even ones in another range, clipped ones."""
    assert findings(tmp_path, {"a.weight": make(100, 100)}, "V654") == []


def test_trained_networks_are_left_alone(tmp_path):
    """A small network after real training has none of these findings."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(60):
        nn.functional.cross_entropy(model(torch.randn(16, 1, 8, 8)), torch.randint(0, 10, (16,))).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "model.pt")
    for code in ("V651", "V652", "V653", "V654", "V655", "V656", "T552", "T554"):
        assert found(tmp_path / "model.pt", code, deep=True) == []


def test_memory_that_was_never_written(tmp_path):
    """Random bits as float32; the same bits as weights of one size are no garbage."""
    torch.manual_seed(0)
    bits = torch.randint(-(2**31), 2**31 - 1, (64, 64)).to(torch.int32)
    (finding,) = findings(tmp_path, {"a.weight": bits.view(torch.float32)}, "V655")
    assert finding.keys == (("a.weight",),)
    assert findings(tmp_path, {"a.weight": torch.randn(64, 64) * 1e-25}, "V655") == []


def test_bytes_in_the_other_order(tmp_path):
    """Weights whose bytes were swapped have all sizes."""
    weight = torch.randn(64, 64)
    swapped = weight.view(torch.uint8).view(-1, 4).flip(1).contiguous().view(torch.float32).view(64, 64)
    assert len(findings(tmp_path, {"a.weight": swapped}, "V655")) == 1


def test_the_largest_weight_is_named(tmp_path):
    """Its value and its place."""
    state = {"a.weight": torch.ones(3, 3), "b.weight": torch.full((3, 3), -123_456.0)}
    (finding,) = findings(tmp_path, state, "V656")
    assert finding.message == "1 tensor holds weights larger than 10,000; the largest is 123,456 in b.weight"


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_indices_of_every_sparse_layout_are_looked_at(layout, tmp_path):
    """Sound ones are left alone; one that points past the end, or before the beginning, is an error with the key."""
    dense = torch.zeros(4, 6)
    dense[1, 2], dense[3, 5] = 1.5, 2.5
    blocks = {"blocksize": (2, 2)} if layout.startswith("b") else {}
    made = getattr(dense, "to_sparse" if layout == "coo" else f"to_sparse_{layout}")(**blocks)
    assert findings(tmp_path, {"w": made}, "V659") == []
    for wrong in (-1, 6):
        inner = {"coo": "_indices", "csr": "col_indices", "bsr": "col_indices"}.get(layout, "row_indices")
        getattr(made, inner)().view(-1)[-1] = wrong
        (finding,) = findings(tmp_path, {"w": made}, "V659")
        assert finding.keys == (("w",),)
        assert finding.severity is Severity.ERROR
        assert f"the index {wrong}" in finding.message


@pytest.mark.filterwarnings("ignore:Sparse")
def test_rows_that_do_not_follow_one_another_are_found(tmp_path):
    """Where the rows of a compressed tensor begin never goes back, and ends with all entries."""
    made = torch.eye(3).to_sparse_csr()
    for wrong in ([0, 2, 1, 3], [1, 1, 2, 3], [0, 1, 2, 2]):
        made.crow_indices().copy_(torch.tensor(wrong))
        (finding,) = findings(tmp_path, {"w": made}, "V659")
        assert "its rows do not follow one another" in finding.message
