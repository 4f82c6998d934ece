"""D605 xla-rebuild."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import nn

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.edits import MoveToCpu, Retag, Safety
from ckptdoctor.errors import RefusedError
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Finding
from ckptdoctor.loading import load
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import Outcome, repair
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.rules.examples import T
from ckptdoctor.trainer.snapshot.training import saving_with_tag
from tests.builders import moved
from tests.rules import nouns


def saved(contents: object, path: Path, tag: str = "xla:0", legacy: bool = False) -> Path:
    """The file as torch writes it where the tensors are on that device."""
    with saving_with_tag(tag):
        torch.save(contents, path, _use_new_zipfile_serialization=not legacy)
    return path


def findings(path: Path) -> list[Finding]:
    """All that check says, without remarks."""
    return [each for each in check(str(path), Settings()).findings if each.severity.value != "info"]


def fixed(path: Path, **asked: object) -> Outcome:
    return repair(plan(FixRequest(str(path), output=str(path.with_name("fixed.pt")), **asked)))  # type: ignore[arg-type]


def on(device: str) -> T:
    return T((2, 2), device=device, saved_as="copy")


@pytest.mark.parametrize(
    "device", ["xla:0", "xla:3", "maia:0", "mtia:0", "lazy:0", "vulkan:0", "ipu:0", "hpu:0", "ort:0"]
)
def test_it_quotes_torch(device: str, tmp_path: Path) -> None:
    """What is quoted is how torch's message begins where the backend is missing."""
    [found] = nouns.findings("D605", {"w": on(device)})
    torch.save({"w": moved(torch.ones(2, 2), device)}, tmp_path / "a.pt")
    with pytest.raises(Exception) as caught:
        torch.load(tmp_path / "a.pt")
    [says] = found.torch_says
    begins, _, ends = says.partition("…")
    assert str(caught.value).startswith(begins)
    assert ends in str(caught.value)


def test_it_quotes_torch_of_arrays(tmp_path: Path) -> None:
    """Arrays are refused before their device matters, and no other rule speaks of their names."""
    values = {"w": nn.Parameter(torch.ones(2)), "none": torch.empty(0)}
    torch.save({key: moved(value, saved_as="array") for key, value in values.items()}, tmp_path / "a.pt")
    with pytest.raises(Exception) as caught:
        torch.load(tmp_path / "a.pt")
    [found] = findings(tmp_path / "a.pt")
    assert found.code == "D605"
    assert found.torch_says[0] in str(caught.value)
    words = 'needs map_location="cpu", and weights_only rejects it, since the values are NumPy arrays.'
    assert words in found.cause


def test_map_location_is_what_helps(tmp_path: Path) -> None:
    """In archives, as the finding says; the old format does not pass it on, as the finding says, too."""
    new = saved({"w": torch.ones(2)}, tmp_path / "new.pt")
    assert torch.equal(torch.load(new, map_location="cpu")["w"], torch.ones(2))
    assert 'needs map_location="cpu".' in findings(new)[0].cause
    old = saved({"w": torch.ones(2)}, tmp_path / "old.pt", legacy=True)
    with pytest.raises(NotImplementedError):
        torch.load(old, map_location="cpu")
    assert "fails, with map_location too." in findings(old)[0].cause


def test_one_finding_for_one_cause() -> None:
    """D605 speaks of what is moved, D604 of what is tagged, D603 of several devices together, with one repair."""
    contents = {"a.w": on("xla:0"), "b.w": T((2, 2), device="cuda:0"), "c.w": on("xla:1")}
    assert nouns.findings("D604", contents) == []
    [found] = nouns.findings("D605", contents)
    assert found.message == "2 tensors are moved to xla:0 and xla:1 when the file is loaded"
    assert found.keys == (("a.w",), ("c.w",))
    assert found.fix is not None
    assert (found.fix.edits, found.fix.safety) == ((MoveToCpu(("xla:0", "xla:1")),), Safety.SAFE)
    [mixed] = nouns.findings("D603", contents)
    assert mixed.message == "the storages are spread over 3 devices: cuda:0 (1 storage), xla:0 (1) and xla:1 (1)"
    assert mixed.fix is not None
    assert mixed.fix.edits == (MoveToCpu(("xla:0", "xla:1")), Retag("cpu", ("cuda:0",)))


def test_a_model_that_is_partly_there() -> None:
    """D603 knows where the tensors belong, not where their copies are."""
    assert nouns.findings("D603", {"a.w": on("xla:0"), "b.w": on("xla:0")}) == []
    [found] = nouns.findings("D603", {"a.w": on("xla:0"), "b.w": on("xla:0"), "c.w": T((2, 2))})
    assert found.message == "the weights are on 2 devices: xla:0 (2 tensors) and cpu (1)"
    assert found.keys == (("c.w",),)


@pytest.mark.parametrize("asked", [{}, {"to_cpu": True}], ids=["plain", "--to-cpu"])
@pytest.mark.parametrize("legacy", [False, True])
def test_the_repair_gives_what_was_on_the_device(tmp_path: Path, asked: dict[str, bool], legacy: bool) -> None:
    """Every value, kind and gradient, with all storages byte-identical; check is content."""
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    contents = {"model": model.state_dict(), "params": list(model.parameters()), "epoch": 3}
    path = saved(contents, tmp_path / "a.pt", legacy=legacy)
    outcome = fixed(path, **asked)
    assert outcome.proof is not None
    assert outcome.proof.identical == outcome.proof.storages
    assert findings(Path(outcome.plan.output)) == []
    loaded = torch.load(outcome.plan.output, weights_only=True)
    assert all(torch.equal(loaded["model"][key], value) for key, value in contents["model"].items())  # type: ignore[attr-defined]
    assert all(type(each) is nn.Parameter and each.requires_grad for each in loaded["params"])


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("legacy", [False, True])
def test_arrays_become_storages(tmp_path: Path, others: bool, legacy: bool) -> None:
    """In archives and, on the way to one, in the old format; where there was no storage before, as well."""
    values = {"w": nn.Parameter(torch.randn(3, 4)), "b": torch.randn(5).bfloat16(), "t": torch.randn(2, 3).t()}
    contents = OrderedDict([(key, moved(value, saved_as="array")) for key, value in values.items()])
    if others:
        contents["cpu"] = torch.ones(7)
    torch.save(contents, tmp_path / "a.pt", _use_new_zipfile_serialization=not legacy)
    outcome = fixed(tmp_path / "a.pt")
    assert outcome.proof is not None
    assert (outcome.proof.identical, outcome.proof.remade) == (int(others), 3)
    assert findings(Path(outcome.plan.output)) == []
    for options in ({}, {"mmap": True}):
        loaded = torch.load(outcome.plan.output, weights_only=True, **options)
        assert all(torch.equal(loaded[key], value) for key, value in values.items())
        assert loaded["t"].stride() == (1, 3)
    assert isinstance(loaded["w"], nn.Parameter)


def test_small_arrays_are_as_many_storages(tmp_path: Path) -> None:
    """Equal arrays are no ties, however few bytes they have."""
    values = [torch.tensor(True), torch.tensor(True), torch.empty(0), torch.empty(0)]
    torch.save([moved(value, saved_as="array") for value in values], tmp_path / "a.pt")
    mine = load(tmp_path / "a.pt")
    mine[0].fill_(False)
    assert mine[1]
    outcome = fixed(tmp_path / "a.pt")
    assert outcome.proof is not None
    assert (outcome.proof.storages, outcome.proof.remade) == (4, 4)
    loaded = torch.load(outcome.plan.output, weights_only=True)
    assert all(torch.equal(got, wanted) for got, wanted in zip(loaded, values, strict=True))


def test_an_array_in_the_old_format_needs_an_archive(tmp_path: Path) -> None:
    """--to-cpu alone is refused with the way out, and nothing is written."""
    torch.save({"w": moved(torch.ones(2), saved_as="array")}, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(RefusedError, match="--select C105"):
        plan(FixRequest(str(tmp_path / "a.pt"), to_cpu=True))


def test_what_would_be_rounded_is_left_with_advice(tmp_path: Path) -> None:
    """The rest is repaired, and the finding that stays says what to do."""
    torch.save({"good": moved(torch.ones(2), saved_as="array"), "odd": rounded()}, tmp_path / "a.pt")
    outcome = fixed(tmp_path / "a.pt")
    left, mixed = findings(Path(outcome.plan.output))
    assert (mixed.code, mixed.fix) == ("D603", None)
    assert (left.code, left.keys, left.fix) == ("D605", (("odd",),), None)
    assert left.advice.startswith("The file does not show plainly what they hold.")
    assert outcome.plan.left[0].code == "D605"
    assert outcome.plan.expected.tensors[0].device == "cpu"


def rounded() -> object:
    class Call:
        def __reduce__(self) -> tuple[object, ...]:
            array = torch.tensor([0.1]).numpy()
            return torch._utils._rebuild_device_tensor_from_numpy, (array, torch.bfloat16, "xla:0", False)

    return Call()


@pytest.mark.parametrize("saved_as", ["copy", "array"])
def test_whole_models_are_fixed_in_one_run(tmp_path: Path, saved_as: str) -> None:
    """A pickled model of a TPU becomes its state dict on the CPU."""
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    wanted = {key: value.clone() for key, value in model.state_dict().items()}
    for module in model.modules():
        for names in (module._parameters, module._buffers):
            names.update({name: moved(value, saved_as=saved_as) for name, value in names.items() if value is not None})
    torch.save(model, tmp_path / "a.pt")
    assert [each.code for each in findings(tmp_path / "a.pt")] == ["D605", "P204"]
    outcome = fixed(tmp_path / "a.pt")
    assert [step.label for step in outcome.plan.steps] == ["D605", "P204"]
    assert findings(Path(outcome.plan.output)) == []
    loaded = torch.load(outcome.plan.output, weights_only=True)
    assert list(loaded) == list(wanted)
    assert all(torch.equal(loaded[key], value) for key, value in wanted.items())


def test_p204_alone_leaves_the_device(tmp_path: Path) -> None:
    """Each repair is for its own cause, in either order."""
    path = saved(nn.Linear(2, 2), tmp_path / "a.pt")
    outcome = fixed(path, selection=Selection(select=("P204",)))
    assert [each.code for each in findings(Path(outcome.plan.output))] == ["D605"]
