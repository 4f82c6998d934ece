"""R005 tied-keys, with real modules and what transformers saves of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.examine.file import check
from ckptdoctor.examine.targets import read_reference
from ckptdoctor.findings import FileReport, Severity
from ckptdoctor.fit.state_dict import load_state_dict
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.target.mapping import as_reference
from tests.rules import nouns


class Tied(nn.Module):
    """A model whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.layer = nn.Linear(4, 4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.embed.weight


def _saved(folder: str, leave_out: str, prefix: str = "") -> dict[str, torch.Tensor]:
    saved = {prefix + key: value for key, value in Tied().state_dict().items() if key != leave_out}
    torch.save(saved, folder)
    return saved


def _codes(report: FileReport) -> list[str]:
    return [finding.code for finding in report.findings]


@pytest.mark.parametrize(("missing", "partner"), [("head.weight", "embed.weight"), ("embed.weight", "head.weight")])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_module_tells_what_is_tied(tmp_path, missing: str, partner: str, prefix: str) -> None:
    """Under whichever name the tensor was saved, and once the other keys have their names; torch says the same."""
    path = str(tmp_path / "model.pt")
    saved = _saved(path, missing, prefix)
    report = check(path, reference=as_reference(Tied()))
    assert _codes(report) == (["N401", "R005"] if prefix else ["R005"])
    found = report.findings[-1]
    assert found.message == f"1 of 4 keys of Tied is missing, and tied to {partner}, which is here"
    bare = {key.removeprefix(prefix): value for key, value in saved.items()}
    assert found.torch_says[0] in nouns.torch_error(Tied(), bare)


def test_the_advice_is_right(tmp_path) -> None:
    """With strict=False the one parameter is filled, under both of its names."""
    path = str(tmp_path / "model.pt")
    saved = _saved(path, "head.weight")
    [found] = check(path, reference=as_reference(Tied())).findings
    assert "strict=False" in found.advice
    net = Tied()
    net.load_state_dict(saved, strict=False)
    assert torch.equal(net.head.weight, saved["embed.weight"])


def test_a_file_tells_what_is_tied(tmp_path) -> None:
    """A file of torch's that holds one view of a storage twice."""
    _saved(str(tmp_path / "model.pt"), "head.weight")
    torch.save(Tied().state_dict(), tmp_path / "like.pt")
    report = check(str(tmp_path / "model.pt"), Settings(like=str(tmp_path / "like.pt")))
    assert _codes(report) == ["R005"]


def test_what_is_wholly_missing_is_missing(tmp_path) -> None:
    """Without either name it is R001's."""
    torch.save({key: value for key, value in Tied().state_dict().items() if "layer" in key}, tmp_path / "model.pt")
    assert "R005" not in _codes(check(str(tmp_path / "model.pt"), reference=as_reference(Tied())))


def test_a_missing_bias_is_not_hidden(tmp_path) -> None:
    """What is tied does not explain what else is missing."""
    kept = {key: value for key, value in Tied().state_dict().items() if key not in ("head.weight", "layer.bias")}
    torch.save(kept, tmp_path / "model.pt")
    report = check(str(tmp_path / "model.pt"), reference=as_reference(Tied()))
    assert _codes(report) == ["R001", "R005"]
    assert report.findings[0].keys == (("layer.bias",),)


def _as_a_folder(net: nn.Module, folder: Path) -> str:
    """What ``safetensors.torch.save_model`` writes of a model, as the folder of a transformers model."""
    folder.mkdir()
    safetensors.torch.save_model(net, str(folder / "model.safetensors"))
    (folder / "config.json").write_text("{}")
    return str(folder)


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("clone", [False, True])
def test_a_name_more_is_no_fault(tmp_path: Path, prefix: str, clone: bool) -> None:
    """What safetensors left out is said to be here, is no error and not to be dropped; the model takes the file."""
    net = Llm()
    like = _as_a_folder(net, tmp_path / "like")
    saved = {prefix + key: value.clone() if clone else value for key, value in net.state_dict().items()}
    torch.save(saved, tmp_path / "model.pt")
    report = check(str(tmp_path / "model.pt"), Settings(like=like))
    assert not {"R001", "R002"} & set(_codes(report))
    [found] = [each for each in report.findings if each.code == "R005"]
    what = "a copy" if clone else "another name"
    assert found.message == f"lm_head.weight is not in {like}, and {what} of embed_tokens.weight, which is"
    assert found.keys == ((f"{prefix}lm_head.weight",),)
    assert found.severity is Severity.INFO
    assert found.fix is None
    outcome = repair(
        plan(FixRequest(str(tmp_path / "model.pt"), auto=True, reference=read_reference(Settings(like=like))))
    )
    assert bool(outcome.written) is bool(prefix)
    net.load_state_dict(torch.load(outcome.report.output if prefix else tmp_path / "model.pt"), strict=True)


def test_other_values_are_no_second_name(tmp_path: Path) -> None:
    """A head with values of its own is not the embedding, whatever it is called; nor are two biases of zeros."""
    net = Llm()
    like = _as_a_folder(net, tmp_path / "like")
    saved = {key: value.clone() for key, value in net.state_dict().items()}
    torch.save({**saved, "lm_head.weight": torch.randn(8, 4)}, tmp_path / "model.pt")
    assert "R002" in _codes(check(str(tmp_path / "model.pt"), Settings(like=like)))
    torch.save({**net.state_dict(), "more.bias": torch.zeros(4)}, tmp_path / "model.pt")
    report = check(str(tmp_path / "model.pt"), Settings(like=like))
    assert [each.keys for each in report.findings if each.code == "R002"] == [(("more.bias",),)]


def test_a_base_model_has_no_head(tmp_path: Path) -> None:
    """Where the file's keys lose the name of the model in which the target is, the head is unexpected as ever."""
    net = Llm()
    like = _as_a_folder(net, tmp_path / "like")
    saved = {key if key.startswith("lm_head") else f"model.{key}": value for key, value in net.state_dict().items()}
    torch.save(saved, tmp_path / "model.pt")
    codes = _codes(check(str(tmp_path / "model.pt"), Settings(like=like)))
    assert {"R002", "N425"} & set(codes)
    assert "R005" not in codes


def test_a_file_of_torch_has_every_name(tmp_path: Path) -> None:
    """What torch.save left out of the target was not in its model."""
    torch.save(Tied().state_dict(), tmp_path / "model.pt")
    _saved(str(tmp_path / "like.pt"), "head.weight")
    report = check(str(tmp_path / "model.pt"), Settings(like=str(tmp_path / "like.pt")))
    assert "N425" in _codes(report)
    assert "R005" not in _codes(report)


class Llm(nn.Module):
    """A language model whose head is its embedding, with the names of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(8, 4)
        self.norm = nn.LayerNorm(4)
        self.lm_head = nn.Linear(4, 8, bias=False)
        self.lm_head.weight = self.embed_tokens.weight


class Shared(nn.Module):
    """One embedding under four names, as T5 has it."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.encoder, self.decoder = (nn.Embedding(8, 4) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 8, bias=False)
        self.encoder.weight = self.decoder.weight = self.head.weight = self.shared.weight


@pytest.mark.parametrize("kept", ["shared.weight", "head.weight"])
@pytest.mark.parametrize("style", ["zip", "legacy", "safetensors"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_the_tensor_gets_all_of_its_names(tmp_path, kept: str, style: str, prefix: str) -> None:
    """torch's files hold it once, safetensors once for each name; the target loads it with strict=True."""
    net, wanted = Shared(), Shared().state_dict()
    gone = set(wanted) - {kept, "norm.weight", "norm.bias"}
    saved = {prefix + key: value for key, value in Shared().state_dict().items() if key not in gone}
    path = str(tmp_path / ("model.safetensors" if style == "safetensors" else "model.pt"))
    if style == "safetensors":
        safetensors.torch.save_file(saved, path, {"format": "pt"})
    else:
        torch.save(saved, path, _use_new_zipfile_serialization=style == "zip")
    outcome = repair(plan(FixRequest(path, auto=True, reference=as_reference(net))))
    assert outcome.written is not None
    output = outcome.report.output
    found = safetensors.torch.load_file(output) if style == "safetensors" else torch.load(output)
    net.load_state_dict(found, strict=True)
    assert torch.equal(net.head.weight, saved[prefix + kept])
    places = {value.data_ptr() for key, value in found.items() if "norm" not in key}
    assert style == "safetensors" or len(places) == 1
    assert not set(_codes(check(output, reference=as_reference(net)))) - {"A701"}


def test_memory_needs_no_file(tmp_path) -> None:
    """``ckptdoctor.load_state_dict`` gives all names as well."""
    path = str(tmp_path / "model.pt")
    saved = _saved(path, "head.weight", "module.")
    net = Tied()
    net.load_state_dict(load_state_dict(path, net), strict=True)
    assert torch.equal(net.head.weight, saved["module.embed.weight"])
