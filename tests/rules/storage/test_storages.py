"""A701, A705 and A707: how tensors lie in storages."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.edits import Compact, MakeContiguous
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Severity
from tests.builders import build
from tests.rules.examined import find_one, found, healthy, loads, sick


@pytest.mark.parametrize("example", sick("A701"), ids=lambda example: example.title)
def test_safetensors_refuses_shared_memory(tmp_path, example):
    """The quoted line is what save_file says to the loaded state dict; in a .pt it is information."""
    finding = find_one(example, tmp_path, "A701")
    assert finding.severity is Severity.INFO
    with pytest.raises(RuntimeError) as caught:
        save_file(loads(build(example, tmp_path)), tmp_path / "x.safetensors")
    assert finding.torch_says[0] in str(caught.value)


def test_safetensors_accepts_neighbours(tmp_path):
    """Views that do not overlap are no finding, and save_file takes them."""
    for example in healthy("A701"):
        path = build(example, tmp_path)
        assert found(path, "A701") == []
        save_file(loads(path), tmp_path / "x.safetensors")


def test_tied_weights_of_a_real_model(tmp_path):
    """An output layer that is the input embedding."""
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(8, 4), "head": torch.nn.Linear(4, 8, bias=False)})
    model["head"].weight = model["embed"].weight
    torch.save(model.state_dict(), tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "A701")
    assert finding.message == '"embed.weight" and "head.weight" are one tensor'


def test_a_slice_is_bloat(tmp_path):
    """The fix compacts just the storages with bytes that nobody views."""
    torch.save({"w": torch.zeros(100_000)[:10], "b": torch.zeros(10)}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "A705")
    assert finding.fix is not None
    assert finding.fix.edits == (Compact(("0",)),)
    assert finding.keys == (("w",),)


@pytest.mark.parametrize(
    ("elements", "severity"), [(1_000_000, Severity.WARNING), (200_000, Severity.INFO)], ids=["much", "little"]
)
def test_only_much_bloat_is_a_warning(tmp_path, elements, severity):
    """A megabyte or more, and half of all bytes or more."""
    torch.save({"w": torch.zeros(elements)[:10]}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "A705")
    assert finding.severity is severity


def test_bloat_beside_much_larger_weights_is_information(tmp_path):
    """A share of a third is worth knowing, no more."""
    torch.save({"w": torch.zeros(1_000_000), "s": torch.zeros(500_000)[:10]}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "A705")
    assert finding.severity is Severity.INFO


def test_chunks_of_one_storage_are_no_bloat(tmp_path):
    """Together they view all of it."""
    torch.save(list(torch.zeros(10_000).chunk(4)), tmp_path / "a.pt")
    assert found(tmp_path / "a.pt", "A705") == []


@pytest.mark.parametrize("example", sick("A707"), ids=lambda example: example.title)
def test_safetensors_refuses_other_orders(tmp_path, example):
    """The quoted line is what save_file says."""
    finding = find_one(example, tmp_path, "A707")
    assert finding.severity is Severity.INFO
    with pytest.raises(ValueError, match="non contiguous") as caught:
        save_file(loads(build(example, tmp_path)), tmp_path / "x.safetensors")
    assert finding.torch_says[0] in str(caught.value)


def test_channels_last_is_named(tmp_path):
    """A model in that format: every 4-d weight, one finding, one fix."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 2, 3)).to(
        memory_format=torch.channels_last
    )
    torch.save(model.state_dict(), tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "A707")
    assert "channels_last" in finding.cause
    assert finding.fix is not None
    assert finding.fix.edits == (MakeContiguous((("0.weight",), ("1.weight",))),)


def test_shared_tensors_have_no_fix(tmp_path):
    """Putting them in order would part them from others; expanded ones, which would grow, are A708."""
    base = torch.zeros(4, 3)
    contents = {"a": base, "b": base.t(), "c": torch.zeros(1, 3).expand(5, 3), "d": torch.zeros(2, 3).t()}
    torch.save(contents, tmp_path / "a.pt")
    fixed, left = sorted(found(tmp_path / "a.pt", "A707"), key=lambda finding: finding.fix is None)
    assert (fixed.keys, left.keys) == ((("d",),), (("b",),))


def test_a_healthy_training_checkpoint_has_no_warning(tmp_path):
    """Tied and channels_last weights, an optimizer, shared buffers: information at most, of any rule, however deep."""
    embed = torch.nn.Embedding(8, 4)
    head = torch.nn.Linear(4, 8, bias=False)
    head.weight = embed.weight
    conv = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    model = torch.nn.ModuleDict({"embed": embed, "head": head, "conv": conv, "norm": torch.nn.BatchNorm2d(4)})
    optimizer = torch.optim.AdamW(model.parameters())
    sum(parameter.sum() for parameter in model.parameters()).backward()
    optimizer.step()
    contents = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    torch.save(contents, tmp_path / "a.pt")
    report = check(str(tmp_path / "a.pt"), Settings(deep=True))
    assert {finding.code for finding in report.findings} >= {"A701", "A707"}
    assert [finding for finding in report.findings if finding.severity is not Severity.INFO] == []
