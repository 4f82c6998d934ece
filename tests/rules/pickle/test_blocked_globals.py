"""P201 to P206: names that torch refuses, in real files, and what torch says to them."""

from __future__ import annotations

import argparse
import datetime
import functools
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch

from ckptdoctor.checkpoint import Checkpoint, GlobalName, Mapping, Named, Opaque
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.diagnose.settings import Settings
from ckptdoctor.edits import Drop, Replace, Safety
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Severity
from ckptdoctor.pickles.decode import decode
from ckptdoctor.rules.examples import Example, Obj, Odict, T
from tests.builders import build
from tests.rules.examined import found, sick, torch_error
from tests.rules.nouns import findings_in

WEIGHTS = {"fc.weight": T((2, 2)), "fc.bias": T((2,))}
RULES = (
    ("P201", sick("P201")),
    ("P202", sick("P202")),
    ("P203", sick("P203")),
    ("P204", sick("P204")),
    ("P205", sick("P205")),
    ("P206", sick("P206")),
)
CASES = [pytest.param(code, example, id=f"{code}-{example.title}") for code, sick in RULES for example in sick]
# names that torch.load does not come to with weights_only: behind the end, in bytes, and where it stops earlier
UNSEEN = {"a call before a break", "a pickle after the end of another one", "a pickle in bytes"}
SEEN = [case for case in CASES if case.values[1].title not in UNSEEN]
LOAD = """
import sys, torch
for path in sys.argv[1:]:
    try:
        torch.load(path, weights_only=False)
    except Exception as error:
        print(error)
"""


def p_codes(path):
    report = check(str(path), Settings(selection=Selection(select=("P",))))
    return sorted({finding.code for finding in report.findings})


@pytest.mark.parametrize(("code", "example"), SEEN)
def test_the_first_quoted_line_is_what_torch_says(tmp_path, code, example):
    """torch stops at the first name it refuses; that line is quoted first, word for word."""
    path = build(example, tmp_path)
    first = found(path, code)[0]
    assert first.torch_says[0] in torch_error(path)


@pytest.mark.parametrize(("code", "example"), CASES)
def test_one_cause_is_one_rule(tmp_path, code, example):
    """No other rule of the family says something about the same names."""
    assert p_codes(build(example, tmp_path)) == [code]


def test_what_pickle_says_about_missing_classes(tmp_path):
    """The last line is the one of weights_only=False, in a program that has no such class."""
    examples = [(sick("P205")[0], "P205"), (sick("P204")[0], "P204")]
    paths = [build(example, tmp_path) for example, _ in examples]
    said = subprocess.run(
        [sys.executable, "-c", LOAD, *map(str, paths)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for path, (_, code), line in zip(paths, examples, said, strict=True):
        (finding,) = found(path, code)
        assert finding.torch_says[-1] in line


def test_all_names_are_told_with_their_places(tmp_path):
    """A real training checkpoint: each object under its own rule, at its own key."""
    contents = {
        "model": {"w": torch.zeros(2, 2)},
        "args": argparse.Namespace(lr=0.1, out=pathlib.PurePosixPath("/runs"), best=np.float32(0.5)),
        "when": datetime.datetime(2024, 5, 1, 12, 0),
        "best": np.float64(0.25),
    }
    torch.save(contents, tmp_path / "a.pt")
    places = {code: {each.keys for each in found(tmp_path / "a.pt", code)} for code in ("P201", "P202", "P203")}
    assert places == {
        "P201": {(("args",), ("when",))},
        "P202": {(("args", "best"), ("best",))},
        "P203": {(("args", "out"),)},
    }


def test_objects_become_plain_data(tmp_path):
    """The edits hold what the objects hold; nothing inside them is left out."""
    contents = {
        "model": {"w": torch.zeros(2, 2)},
        "args": argparse.Namespace(lr=0.1, out=pathlib.PurePosixPath("/runs"), best=np.float32(0.1), d={"a": [1]}),
        "when": datetime.datetime(2024, 5, 1, 12, 0),
    }
    torch.save(contents, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "P201")
    assert finding.fix is not None
    assert finding.fix.safety is Safety.SAFE
    args = {"lr": 0.1, "out": "/runs", "best": np.float32(0.1).item(), "d": {"a": [1]}}
    assert finding.fix.edits == (Replace(("args",), args), Replace(("when",), "2024-05-01T12:00:00"))


@pytest.mark.parametrize(
    "value",
    [np.float64(0.1), np.float32(0.1), np.float16(0.1), np.int64(-3), np.uint8(200), np.bool_(True), np.str_("best")],
    ids=lambda value: type(value).__name__,
)
def test_a_numpy_scalar_becomes_its_item(tmp_path, value):
    """The same value, as NumPy itself converts it."""
    torch.save({"x": value}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "P202")
    assert finding.fix is not None
    (edit,) = finding.fix.edits
    assert edit == Replace(("x",), value.item())
    assert type(edit.value) is type(value.item())


def test_numpy_values_and_arrays_are_two_findings(tmp_path):
    """What can be repaired is told apart from what cannot, so that the repair leaves no finding of its own behind."""
    torch.save({"best": np.float64(1), "mean": np.zeros(3, "m8[s]")}, tmp_path / "a.pt")
    curable, rest = sorted(found(tmp_path / "a.pt", "P202"), key=lambda finding: finding.fix is None)
    assert (curable.keys, rest.keys) == ((("best",),), (("mean",),))
    assert rest.fix is None


def test_a_namespace_with_a_tensor_stays(tmp_path):
    """No plain data holds a tensor, so there is no repair, and the advice says what to do."""
    torch.save({"args": argparse.Namespace(w=torch.zeros(2))}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "P201")
    assert finding.fix is None
    assert "add_safe_globals([argparse.Namespace])" in finding.advice


def measure(value):
    """A function of a training script: what it does is up to it."""
    return value


class Measured:
    """An object that calls the function when it is loaded."""

    def __reduce__(self):
        return measure, (1,)


def test_nobody_is_told_to_allow_a_function(tmp_path):
    """torch would call it: what a class of plain data does is known, what a function does is not."""
    torch.save({"x": Measured()}, tmp_path / "a.pt")
    advice = " ".join([finding.advice for finding in check(str(tmp_path / "a.pt")).findings])
    assert "add_safe_globals" not in advice
    assert "Do not allow tests.rules.pickle.test_blocked_globals.measure: torch would call it" in advice


def test_a_function_that_is_only_a_value_may_be_allowed(tmp_path):
    """The pickle names it and calls nothing by it, so that torch does not either once it is allowed."""
    torch.save({"w": torch.ones(2), "act": measure, "acts": [(measure,)]}, tmp_path / "a.pt")
    advice = " ".join([finding.advice for finding in check(str(tmp_path / "a.pt")).findings])
    assert "Do not allow" not in advice
    assert f"from {__name__} import measure; torch.serialization.add_safe_globals([measure])" in advice
    with torch.serialization.safe_globals([measure]):
        assert torch.load(tmp_path / "a.pt")["act"] is measure


@pytest.mark.parametrize("kind", ["called too", "an argument", "a state", "a key", "dangerous"])
def test_a_function_that_is_used_in_any_other_way_may_not(tmp_path, kind):
    """One call elsewhere in the file, or something that may call it, is enough; so is a name that does harm."""
    values = {
        "called too": [measure, Measured()],
        "an argument": functools.partial(measure),
        "a state": argparse.Namespace(act=measure),
        "a key": {measure: 1},
        "dangerous": os.system,
    }
    torch.save({"x": values[kind]}, tmp_path / "a.pt")
    findings = check(str(tmp_path / "a.pt")).findings
    advice = " ".join([finding.advice for finding in findings if finding.code != "P206"])
    assert "add_safe_globals([tests.rules.pickle.test_blocked_globals.measure" not in advice
    assert "add_safe_globals([os.system" not in advice
    assert "add_safe_globals([posix.system" not in advice


@pytest.mark.parametrize(
    ("pickled", "refers"),
    [
        (b"\x80\x02cm\nf\n.", True),
        (b"\x80\x02](cm\nf\ncm\nf\n\x85e.", True),
        (b"\x80\x02cm\nf\n(tR0cm\nf\n.", False),  # called, and the result thrown away
        (b"\x80\x02cm\nf\n}b.", False),  # given a state
        (b"\x80\x02](cm\nf\ncm\nf\n(tRe.", False),  # called the second time
        (b"\x80\x02cm\nf\nQ.", False),  # what a persistent id names
        (b"\x80\x02(cm\nf\n\x91.", False),  # hashed
    ],
)
def test_what_a_pickle_does_to_a_name(pickled, refers):
    """Only what ends as a plain value, and nowhere in a call, a state, an identifier or a key, is just a reference."""
    assert [use.refers for use in decode(pickled).globals] == [refers]


def test_the_advice_makes_torch_load_it(tmp_path):
    """add_safe_globals with the named class is what torch wants."""
    torch.save({"args": argparse.Namespace(lr=1)}, tmp_path / "a.pt")
    with torch.serialization.safe_globals([argparse.Namespace]):
        assert torch.load(tmp_path / "a.pt")["args"].lr == 1


def test_everyday_checkpoints_have_no_such_finding(tmp_path):
    """What torch loads is not reported: state dicts, optimizers, parameters, sparse and quantized tensors."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(3, 2)).sum().backward()
    optimizer.step()
    contents = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "parameter": model[0].weight,
        "sparse": torch.eye(3).to_sparse(),
        "meta": torch.empty(3, device="meta"),
        "set": {1, 2},
        "bytes": b"abc",
        "dtype": torch.bfloat16,
        "size": torch.Size([1, 2]),
        "rng": torch.get_rng_state(),
    }
    torch.save(contents, tmp_path / "a.pt")
    torch.load(tmp_path / "a.pt")
    assert p_codes(tmp_path / "a.pt") == []


def test_a_real_model_saved_whole(tmp_path):
    """torch.save(model) with torch's own classes: one finding for all of them."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.ReLU())
    torch.save({"net": model, "epoch": 3}, tmp_path / "a.pt")
    (finding,) = found(tmp_path / "a.pt", "P204")
    assert finding.keys == (("net",),)
    assert p_codes(tmp_path / "a.pt") == ["P204"]


def test_junk_without_tensors_can_be_dropped(tmp_path):
    """Unsafe, and only where no tensor goes with it."""
    droppable, holds_tensor = sick("P205")
    (finding,) = found(build(droppable, tmp_path), "P205")
    assert finding.fix is not None
    assert (finding.fix.edits, finding.fix.safety) == ((Drop((("recorder",),)),), Safety.UNSAFE)
    (finding,) = found(build(holds_tensor, tmp_path), "P205")
    assert finding.fix is None


def test_dangerous_wins_over_all_other_causes(tmp_path, capfd):
    """A command inside a Namespace is the dangerous one's finding, and nothing is run."""
    contents = {"args": Obj("argparse.Namespace", {"x": Obj("os.system", arguments=("echo ran",))})}
    path = build(Example("hidden", contents), tmp_path)
    assert p_codes(path) == ["P201", "P206"]
    (finding,) = found(path, "P206")
    assert finding.keys == (("args", "x"),)
    assert found(path, "P201")[0].fix is None
    assert "ran" not in capfd.readouterr().out


def test_distributed_tensors_need_an_import(tmp_path):
    """torch names the module to import; a warning, since the file loads then."""
    contents = Obj("torch.distributed.tensor.placement_types.Replicate", {})
    path = build(Example("placement", {"p": contents, "w": T((2,))}), tmp_path)
    (finding,) = found(path, "P201")
    assert finding.severity is Severity.WARNING
    assert "torch.distributed.tensor" in finding.advice
    if "torch.distributed.tensor" not in sys.modules:
        assert finding.torch_says[0] in torch_error(path)


def test_legacy_files_name_globals_too(tmp_path):
    """The same rules over the older container."""
    example = Example("old", Odict({"w": T((2,)), "args": Obj("argparse.Namespace", {"lr": 1})}), "torch legacy")
    (finding,) = found(build(example, tmp_path), "P201")
    assert finding.keys == (("args",),)


def test_convertible_objects_are_told_from_the_others():
    """Each group has its places and just the names that appear there; names that appear nowhere go with the others."""
    good = Opaque("argparse.Namespace", (), Mapping("dict", (("lr", 1),)))
    bad = Opaque("argparse.Namespace", (), Mapping("dict", (("f", Named("functools.partial")),)))
    names = [("argparse", "Namespace"), ("functools", "partial"), ("functools", "wraps")]
    listed = tuple([GlobalName(*name, "data.pkl", index) for index, name in enumerate(names)])
    tree = Mapping("dict", (("good", good), ("bad", bad)))
    plain, rest = findings_in("P201", Checkpoint("f", "torch zip", 0, tree, (), (), (), globals=listed))
    assert plain.keys == (("good",),)
    assert plain.fix is not None
    assert plain.fix.edits == (Replace(("good",), {"lr": 1}),)
    assert [name for name in ("Namespace", "partial", "wraps") if name in " ".join(plain.torch_says)] == ["Namespace"]
    assert (rest.keys, rest.fix) == ((("bad",),), None)
    assert [each.split("GLOBAL ")[1].split()[0] for each in rest.torch_says] == [".".join(name) for name in names]
