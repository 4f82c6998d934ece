"""V657 and V658: what of a checkpoint has the very bytes of the one that it came from."""

from __future__ import annotations

import os

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine import deep
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Severity
from tests.libraries import peft, real, transformers


class Net(nn.Module):
    """Two layers and a norm with statistics."""

    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.norm(self.body(x)))


def told(path, base):
    """The findings of the two rules."""
    report = check(str(path), Settings(deep=True, like=str(base)))
    assert report.error is None
    return [each for each in report.findings if each.code in ("V657", "V658")]


def trained(net, parameters):
    """One step of training of these parameters."""
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    net(torch.randn(5, 8)).square().sum().backward()
    optimizer.step()


@pytest.fixture
def net(tmp_path):
    """A network, whose weights lie in base.pt."""
    torch.manual_seed(0)
    net = Net()
    torch.save(net.state_dict(), tmp_path / "base.pt")
    return net


def test_an_optimizer_without_the_parameters_trains_nothing(net, tmp_path):
    """The statistics of the norm change, and nothing else: that is worth a warning."""
    trained(net, [nn.Parameter(torch.zeros(1))])
    torch.save({"model": net.state_dict(), "epoch": 3}, tmp_path / "tuned.pt")
    (finding,) = told(tmp_path / "tuned.pt", tmp_path / "base.pt")
    assert (finding.code, finding.severity) == ("V657", Severity.WARNING)
    assert "all 6 weights of model are byte-identical to" in finding.message


def test_what_is_trained_is_named(net, tmp_path):
    """A head alone: the rest is said to be the base's, with its share."""
    trained(net, net.head.parameters())
    torch.save(net.state_dict(), tmp_path / "tuned.pt")
    (finding,) = told(tmp_path / "tuned.pt", tmp_path / "base.pt")
    assert (finding.code, finding.severity) == ("V658", Severity.INFO)
    assert finding.message.startswith("4 of 6 weights (72.1 % of the parameters) are byte-identical to")
    assert "head (2 keys, 68 parameters)" in finding.cause
    assert finding.keys == (("head.weight",), ("head.bias",))


def test_a_network_that_was_trained_needs_no_word(net, tmp_path):
    """All weights differ."""
    trained(net, net.parameters())
    net.head.weight.data += 1
    torch.save(
        {key: value + (value.dtype.is_floating_point) for key, value in net.state_dict().items()}, tmp_path / "t.pt"
    )
    assert told(tmp_path / "t.pt", tmp_path / "base.pt") == []


@pytest.mark.parametrize("kinds", [("pt", "safetensors"), ("safetensors", "safetensors"), ("safetensors", "pt")])
def test_containers_and_wrappers_do_not_matter(net, tmp_path, kinds):
    """Bytes are compared whatever they are packed in, under the names that the repairs of names give."""
    for name, kind, state in [
        ("tuned", kinds[0], {f"module.{key}": value for key, value in net.state_dict().items()}),
        ("other", kinds[1], net.state_dict()),
    ]:
        path = tmp_path / f"{name}.{kind}"
        torch.save(state, path) if kind == "pt" else save_file(state, path, {"format": "pt"})
    (finding,) = told(tmp_path / f"tuned.{kinds[0]}", tmp_path / f"other.{kinds[1]}")
    assert finding.code == "V657"


@real
def test_a_merge_of_an_untrained_adapter_is_its_base(net, tmp_path):
    """peft merges a LoRA whose B is still zero: the fine-tune has no effect, and that is seen."""
    model = peft.get_peft_model(net, peft.LoraConfig(target_modules=["body", "head"], r=2))
    torch.save(model.merge_and_unload().state_dict(), tmp_path / "merged.pt")
    (finding,) = told(tmp_path / "merged.pt", tmp_path / "base.pt")
    assert finding.code == "V657"


def test_another_dtype_or_shape_is_not_judged(net, tmp_path):
    """Half of the precision, or another number of classes: bytes say nothing there."""
    torch.save(net.half().state_dict(), tmp_path / "half.pt")
    assert told(tmp_path / "half.pt", tmp_path / "base.pt") == []


def test_a_file_is_not_compared_with_itself(net, tmp_path):
    """Neither by its name nor by another one."""
    os.link(tmp_path / "base.pt", tmp_path / "same.pt")
    assert told(tmp_path / "same.pt", tmp_path / "base.pt") == []
    assert told(tmp_path / "base.pt", tmp_path / "base.pt") == []


def test_checksums_spare_reading_what_differs(net, tmp_path, monkeypatch):
    """Of archives of torch only what may be the same is read a second time."""
    torch.save({key: value + 1 for key, value in net.state_dict().items()}, tmp_path / "t.pt")
    read = []
    genuine = deep.same_as_base

    def counted(comparison, source, other, base, work):
        before = base.bytes_read
        found = genuine(comparison, source, other, base, work)
        read.append(base.bytes_read - before)
        return found

    monkeypatch.setattr(deep, "same_as_base", counted)
    assert told(tmp_path / "t.pt", tmp_path / "base.pt") == []
    assert read == [0]


def test_without_deep_nothing_is_compared(net, tmp_path):
    """Headers do not tell."""
    torch.save(net.state_dict(), tmp_path / "tuned.pt")
    report = check(str(tmp_path / "tuned.pt"), Settings(like=str(tmp_path / "base.pt")))
    assert not {"V657", "V658"} & {each.code for each in report.findings}


@real
def test_a_folder_is_a_base_as_well_and_a_tied_head_counts_once(tmp_path):
    """What save_pretrained leaves out is told by its other name: nothing was trained."""
    sizes = {"vocab_size": 50, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2}
    net = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    net.save_pretrained(tmp_path / "base")
    torch.save(net.state_dict(), tmp_path / "tuned.pt")
    (finding,) = told(tmp_path / "tuned.pt", tmp_path / "base")
    assert finding.code == "V657"
    assert told(tmp_path / "base", tmp_path / "base") == []
