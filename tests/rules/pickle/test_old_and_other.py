"""P208–P212: pickles of Python 2, of another torch, of frameworks, of other protocols, and long ones."""

from __future__ import annotations

import argparse

import pytest
import torch

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.edits import Safety
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Severity
from ckptdoctor.loading import load
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.repair import repair
from ckptdoctor.repair.request import FixRequest
from ckptdoctor.rules.examples import Example, Obj, T
from tests.builders import build
from tests.rules.examined import find_one, found, loads, sick, torch_error


class Outer:
    """Has a class within."""

    class Inner:
        """Protocol 2 cannot name it plainly."""


@pytest.mark.parametrize("example", sick("P208"), ids=lambda example: example.title)
def test_strings_of_python_2(tmp_path, example):
    """The words are torch's, and the advice loads the file."""
    finding = find_one(example, tmp_path, "P208")
    path = build(example, tmp_path)
    assert finding.torch_says[0] in torch_error(path)
    assert finding.torch_says[0] in torch_error(path, weights_only=False)
    meant = torch.load(path, weights_only=False, encoding="latin1")
    assert "café" in str(meant)
    assert finding.fix.safety is Safety.UNSAFE
    assert str(loads(fixed(path, tmp_path, "P208"))) == str(meant)


def test_ascii_and_utf8_load(tmp_path):
    """What torch reads without a word is not mentioned."""
    example = sick("P208")[0]
    path = build(example, tmp_path)
    for text in (b"abcd", "abé".encode()):
        path.write_bytes(path.read_bytes().replace(b"caf\xe9", text))
        assert found(path, "P208") == []
        loads(path)


def test_functions_of_torch_that_are_not_there(tmp_path):
    """An error with torch's words; P201 does not say it again."""
    example = sick("P209")[0]
    finding = find_one(example, tmp_path, "P209")
    assert finding.severity is Severity.ERROR
    path = build(example, tmp_path)
    assert finding.torch_says[0] in torch_error(path)
    assert finding.torch_says[-1] in torch_error(path, weights_only=False)
    assert found(path, "P201") == []


def test_the_function_of_torch_0_3_loads(tmp_path):
    """So it is only information, and the values are the same."""
    example = sick("P209")[1]
    finding = find_one(example, tmp_path, "P209")
    assert finding.severity is Severity.INFO
    path = build(example, tmp_path)
    assert torch.equal(loads(path)["w"], load(path)["w"])
    assert check(str(path)).checkpoint.tensors[0].rebuild == "torch._utils._rebuild_tensor"
    assert finding.fix.safety is Safety.SAFE
    out = fixed(path, tmp_path, "P209")
    assert check(str(out)).checkpoint.tensors[0].rebuild == "torch._utils._rebuild_tensor_v2"
    assert torch.equal(loads(out)["w"], loads(path)["w"])


@pytest.mark.parametrize("odd", [frozenset({1}), Outer.Inner], ids=["frozenset", "inner class"])
def test_what_protocol_2_has_no_plain_word_for_is_left(tmp_path, odd):
    """No repair is offered."""
    path = tmp_path / "model.pt"
    torch.save({"w": torch.zeros(3), "odd": odd}, path, pickle_protocol=4)
    assert found(path, "P211")[0].fix is None


def test_a_protocol_does_not_matter_to_the_other_fixes(tmp_path):
    """All safe repairs of a file at once, and torch loads it."""
    path = tmp_path / "model.pt"
    contents = {"w": torch.zeros(3), "args": argparse.Namespace(lr=0.1), "seen": {1, 2}, "raw": b""}
    torch.save(contents, path, pickle_protocol=4)
    out = repair(plan(FixRequest(str(path), output=str(tmp_path / "out.pt")))).plan.output
    loaded = loads(out)
    assert (loaded["args"], loaded["seen"], loaded["raw"]) == ({"lr": 0.1}, {1, 2}, b"")


def test_objects_of_frameworks(tmp_path):
    """What to install is named; P205 does not say it again, and dropping is the fix."""
    finding = find_one(sick("P210")[1], tmp_path, "P210")
    assert "pip install mmengine fairseq" in finding.advice
    path = build(sick("P210")[1], tmp_path)
    assert found(path, "P205") == []
    finding = found(path, "P210")[0]
    assert finding.torch_says[0] in torch_error(path)
    assert finding.fix is None


def test_objects_of_frameworks_are_dropped(tmp_path):
    """Where plain data cannot say them, and they stand under keys of their own."""
    path = build(Example("", {"w": T(), "log": Obj("mmengine.logging.HistoryBuffer", {"n": 3})}), tmp_path)
    assert found(path, "P210")[0].fix.safety is Safety.UNSAFE
    assert set(loads(fixed(path, tmp_path, "P210"))) == {"w"}


def test_configurations_become_plain(tmp_path):
    """What the nodes of OmegaConf hold, safely."""
    path = build(sick("P210")[0], tmp_path)
    assert found(path, "P205") == []
    assert found(path, "P210")[0].fix.safety is Safety.SAFE
    assert loads(fixed(path, tmp_path, "P210"))["cfg"] == {"lr": 0.1}


def fixed(path, folder, code):
    """The file after the rule's repairs, unsafe ones as well."""
    out = folder / "out.pt"
    repair(plan(FixRequest(str(path), output=str(out), selection=Selection(select=(code,)), unsafe=True)))
    return out


@pytest.mark.parametrize("zipped", [True, False], ids=["archive", "old format"])
@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_other_protocols(tmp_path, zipped, protocol, recwarn):
    """torch refuses 4 and 5 by default, and warns of 3, in these words."""
    path = tmp_path / "model.pt"
    torch.save({"w": torch.zeros(3)}, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    (finding,) = found(path, "P211")
    if protocol == 3:
        assert finding.severity is Severity.INFO
        loads(path)
    else:
        assert finding.severity is Severity.ERROR
        assert finding.torch_says[0] in torch_error(path)
    assert any(finding.torch_says[-1] in str(each.message) for each in recwarn.list)
    recwarn.clear()
    assert finding.fix.safety is Safety.SAFE
    out = fixed(path, tmp_path, "P211")
    assert torch.equal(loads(out)["w"], torch.zeros(3))
    assert found(out, "P211") == []
    assert not recwarn.list


def test_a_history_that_is_longer_than_the_weights(tmp_path):
    """Information; a warning where it is most of a long file. The command that drops it works."""
    path = tmp_path / "model.pt"
    torch.save({"model": {"w": torch.zeros(3)}, "run [1]": {"loss": [0.5] * 200_000}}, path)
    (finding,) = found(path, "P212")
    assert finding.severity is Severity.INFO
    pattern = finding.advice.partition("--drop ")[2].strip("'")
    out = repair(plan(FixRequest(str(path), output=str(tmp_path / "out.pt"), drop=(pattern,)))).plan.output
    assert found(out, "P212") == []
    assert list(loads(out)) == ["model"]
    torch.save({"w": torch.zeros(3), "log": "x" * 20_000_000}, path)
    assert found(path, "P212")[0].severity is Severity.WARNING


def test_optimizers_and_long_names_are_no_payload(tmp_path):
    """A healthy training checkpoint of many small tensors is not mentioned."""
    model = torch.nn.Sequential(*[torch.nn.Linear(1, 1) for _ in range(2000)])
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, tmp_path / "a.pt")
    assert found(tmp_path / "a.pt", "P212") == []
