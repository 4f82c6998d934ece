"""From Python: names as the commands have them, a lazy checkpoint, reports that show themselves, progress."""

from __future__ import annotations

import doctest
import inspect
import json
import math
import pickle
import subprocess
import sys
from collections import OrderedDict
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import ckptdoctor
from ckptdoctor.api.arguments import in_arguments
from ckptdoctor.cli.main import cli
from tests.commands import run_here

ROOT = Path(__file__).parents[1]

# what an argument is called that cannot have its option's name, and options that only say how to print
OTHERWISE = {("graft", "from"): "donor", ("explain", "error"): "error"}
PRINTING = {"format", "color", "help", "all", "json", "summary", "statistics", "fail_on", "q", "quiet"}
COMMANDS = (
    *("check", "fix", "convert", "merge", "salvage", "graft", "report", "seal", "verify", "show", "browse", "train"),
    *("diff", "explain", "latest", "audit", "prune", "watch", "rebuild", "undo"),
)
DEFAULTS = {"keep_ties"}  # what a command does anyway


@pytest.fixture
def path(tmp_path):
    """A training checkpoint of a wrapped model."""
    path = tmp_path / "run.pt"
    weights = {"module.weight": torch.arange(6.0).reshape(2, 3), "module.bias": torch.zeros(2)}
    torch.save({"model": weights, "epoch": 3, "lr": [0.1, 0.2]}, path)
    return path


@pytest.mark.parametrize("name", COMMANDS)
def test_arguments_have_the_names_of_options(name):
    """Every option of the command that does not only say how to print."""
    known = set(inspect.signature(getattr(ckptdoctor, name)).parameters)
    for option in cli.get_command(None, name).params:
        names = {each.lstrip("-").replace("-", "_") for each in (*option.opts, *option.secondary_opts)}
        names = {OTHERWISE.get((name, each), each) for each in names}
        assert option.param_type_name == "argument" or names & (known | PRINTING | DEFAULTS), names


def test_every_command_is_a_function():
    """But ``setup``, which is about the command line; ``rules`` is a package, so that command is ``list_rules``."""
    commands = set(cli.list_commands(None)) - {"rules", "setup"}
    assert commands == set(COMMANDS) and commands | {"list_rules"} <= set(ckptdoctor.__all__)


def test_rules_are_listed_as_the_command_lists_them():
    """One of each code; a session shows a screen of the table, and JSON is that of the command."""
    rules = ckptdoctor.list_rules()
    assert len({rule.code for rule in rules}) == len(rules) > 150
    assert repr(rules).count("\n") < 60 and "more: print(rules)" in repr(rules) and "N401  module-prefix" in str(rules)
    assert rules.to_json() == run_here("rules", "--format", "json", cwd=ROOT).stdout.decode().rstrip("\n")


def test_contents_are_shown(path):
    """As the command prints them: the tree, the keys, statistics by key, and JSON."""
    shown = ckptdoctor.show(path)
    assert [tensor.key for tensor in shown.tensors] == ["module.weight", "module.bias"]
    assert "epoch" in repr(shown) and shown.to_dict()["path"] == str(path) and shown.stats == {}
    assert repr(ckptdoctor.show(path, keys=True, filter="bias")).count("module.") == 1
    stats = ckptdoctor.show(path, stats=True, root="model", only="*weight", sort="norm")
    assert {key: found.max for key, found in stats.stats.items()} == {"model/module.weight": 5.0}
    assert "module.weight" in repr(stats) and stats.to_dict()["complete"]
    for arguments in ({"keys": True, "stats": True}, {"sort": "norm"}, {"stats": True, "sort": "size of it"}):
        with pytest.raises(ckptdoctor.UsageError, match=r"=True|sort="):
            ckptdoctor.show(path, **arguments)


def test_the_browser_needs_a_terminal(path):
    """And the name of a model, for it is another process."""
    with pytest.raises(ckptdoctor.UsageError, match=r"needs a terminal.*check\("):
        ckptdoctor.browse(path)
    with pytest.raises(ckptdoctor.UsageError, match="another process"):
        ckptdoctor.browse(path, model=nn.Linear(3, 2))


def test_a_run_that_cannot_start_says_why(capfd, monkeypatch):
    """Training is a process of its own: its output is printed, and its last error is raised."""
    with pytest.raises(ckptdoctor.TrainingError, match="nonsense"):
        ckptdoctor.train("nonsense", out="nowhere")
    assert "nonsense" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("said", "in_python"),
    [
        ("give another one with -o.", "give another one with output=."),
        ("--strip-prefix encoder. would clash", 'strip_prefix="encoder." would clash'),
        ("choose: --drop norm.weight, or --rename 'a=b'", 'choose: drop="norm.weight", or rename="a=b"'),
        ("Leave it out: --drop KEY; --strip-module helps", "Leave it out: drop=KEY; strip_module=True helps"),
        ("--drop leaves one out", "drop= leaves one out"),
        ("Try: ckptdoctor fix a.pt --strip-module. Or --auto", "Try: ckptdoctor fix a.pt --strip-module. Or auto=True"),
        ("--no-such-option and x--y stay", "--no-such-option and x--y stay"),
    ],
)
def test_messages_name_arguments(said, in_python):
    """Where the command has options; whole commands stay as they are typed."""
    assert in_arguments(said, inspect.signature(ckptdoctor.fix)) == in_python


def test_errors_that_are_raised_name_arguments(path):
    """Each function of a command translates its own."""
    with pytest.raises(ckptdoctor.UsageError, match=r"^only=\"nothing\*\" matches no tensor"):
        ckptdoctor.show(path, stats=True, only="nothing*")
    assert all(hasattr(getattr(ckptdoctor, name), "__wrapped__") for name in COMMANDS)


def test_values_are_read_when_they_are_asked_for(path):
    """By key path: a tensor, a plain value, a list, a whole dict; and none of a key that is not there."""
    checkpoint = ckptdoctor.open(path)
    assert torch.equal(checkpoint["model/module.weight"], torch.arange(6.0).reshape(2, 3))
    assert (checkpoint["epoch"], checkpoint["lr"]) == (3, [0.1, 0.2])
    assert list(checkpoint["model"]) == ["module.weight", "module.bias"]
    assert list(checkpoint) == ["model/module.weight", "model/module.bias"] and len(checkpoint) == 2
    assert "model/module.bias" in checkpoint and "model/other" not in checkpoint and 3 not in checkpoint
    assert torch.equal(dict(checkpoint)["model/module.bias"], torch.zeros(2))
    with pytest.raises(KeyError, match="model/other"):
        checkpoint["model/other"]


def test_a_checkpoint_without_tensors_is_there(tmp_path):
    """It has no keys, and is true all the same."""
    torch.save({"epoch": 1}, tmp_path / "m.pt")
    checkpoint = ckptdoctor.open(tmp_path / "m.pt")
    assert checkpoint and not list(checkpoint) and checkpoint["epoch"] == 1


def test_arrays_can_be_had_without_torch(path):
    """Each value in a process that has no torch."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import ckptdoctor\n"
        f"checkpoint = ckptdoctor.open({str(path)!r}, framework='np')\n"
        "print(checkpoint['model/module.weight'].tolist())\n"
        f"try: ckptdoctor.open({str(path)!r})['model/module.weight']\n"
        "except ckptdoctor.MissingPackageError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    values, error = done.stdout.splitlines()
    assert values == "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]" and "ckptdoctor[torch]" in error


def test_a_file_that_changed_is_not_read_by_its_old_headers(path):
    """The offsets would be those of another file."""
    checkpoint = ckptdoctor.open(path)
    torch.save({"other": torch.ones(50)}, path)
    with pytest.raises(ckptdoctor.UnreadableError, match="has changed since it was opened"):
        checkpoint["model/module.weight"]


def test_a_packed_file_is_read_by_key_too(tmp_path, path):
    """Headers alone may not tell where its values are."""
    import gzip

    packed = tmp_path / "run.pt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert torch.equal(ckptdoctor.open(packed)["model/module.bias"], torch.zeros(2))


def test_a_report_answers_and_shows_itself(path):
    """In a session as the command prints it, in a notebook as cards, and as the command's JSON."""
    report = ckptdoctor.check(path)
    assert not report.ok and [each.code for each in report.errors] == ["N401"]
    assert repr(report).startswith(str(path)[:30]) and "ckptdoctor fix" in repr(report)
    assert json.loads(report.to_json())["files"][0] == report.to_dict() and report.to_dict()["path"] == str(path)
    page = report._repr_html_()
    assert "N401" in page and "--strip-module" in page and page.count("<div") == page.count("</div>")


def test_a_report_of_a_healthy_file_is_ok(tmp_path):
    """And one of a missing file is not, and shows why."""
    torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "m.pt")
    report = ckptdoctor.check(tmp_path / "m.pt")
    assert report.ok and "no problems found" in report._repr_html_()
    missing = ckptdoctor.check(tmp_path / "absent.pt")
    assert not missing.ok and "No such file" in repr(missing) and "No such file" in missing._repr_html_()


def test_markup_in_a_checkpoint_is_text_in_a_card(tmp_path):
    """Keys and names come from strangers."""
    torch.save({"module.<script>alert(1)</script>": torch.ones(2)}, tmp_path / "<b>.pt")
    page = ckptdoctor.check(tmp_path / "<b>.pt")._repr_html_()
    assert "<script" not in page and "<b>.pt" not in page and "&lt;b&gt;.pt" in page


def test_what_is_loaded_is_in_the_model(path):
    """In torch's order of arguments and in the other one, from a nested, prefixed file."""
    for arguments in ((net := nn.Linear(3, 2), path), (path, other := nn.Linear(3, 2))):
        weights = ckptdoctor.load_state_dict(*arguments)
        assert list(weights) == ["weight", "bias"]
    assert torch.equal(net.weight, other.weight) and torch.equal(net.weight, torch.arange(6.0).reshape(2, 3))


def test_what_is_loaded_names_its_tensors(path, tmp_path):
    """Not all of their values, which would fill a notebook; and what is saved of it is an OrderedDict of torch's."""
    weights = ckptdoctor.load_state_dict(nn.Linear(3, 2), path)
    assert repr(weights) == "2 tensors, 32 bytes\nweight  float32 [2, 3]\nbias    float32 [2]"
    many = ckptdoctor.load_state_dict({f"{each}.weight": (1,) for each in range(500)}, saved(tmp_path / "many.pt"))
    assert len(repr(many).splitlines()) <= 24
    assert type(deepcopy(weights)) is OrderedDict
    torch.save(many, tmp_path / "again.pt")
    assert [*torch.load(tmp_path / "again.pt")] == [*many]


def saved(path):
    """A file of 500 tensors."""
    torch.save({f"module.{each}.weight": torch.ones(1) for each in range(500)}, path)
    return path


def test_a_model_that_does_not_fit_stays_as_it_was(path):
    """Nothing of it is loaded before it is known that all of it fits."""
    net = nn.Linear(5, 2)
    before = net.weight.clone()
    with pytest.raises(ckptdoctor.RefusedError):
        ckptdoctor.load_state_dict(net, path)
    assert torch.equal(net.weight, before)


def test_a_warning_names_the_line_that_loads(tmp_path):
    """Not one of ours: a shard of the folder is missing."""
    index = {"metadata": {}, "weight_map": {"weight": "model-1-of-2.safetensors", "bias": "model-2-of-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    save_file({"weight": torch.ones(2, 3)}, tmp_path / "model-1-of-2.safetensors")
    with pytest.warns(UserWarning, match=r"model-2-of-2\.safetensors") as caught:
        ckptdoctor.load_state_dict(nn.Linear(3, 2), tmp_path, strict=False)
    assert [each.filename for each in caught] == [__file__]


def test_a_target_repairs_what_does_not_fit(path, tmp_path):
    """A module as the target of fix, without a command line that could name it."""
    report = ckptdoctor.fix(path, tmp_path / "fits.pt", model=nn.Linear(3, 2))
    nn.Linear(3, 2).load_state_dict(torch.load(report.output))


def test_one_pattern_or_several(path, tmp_path):
    """A text is one, not its letters."""
    for number, drop in enumerate(("lr", ["lr", "epoch"])):
        report = ckptdoctor.fix(path, tmp_path / f"{number}.pt", drop=drop, unsafe_fixes=True)
        assert "lr" not in torch.load(report.output)


def test_files_are_put_together_and_recovered(tmp_path):
    """merge, with parts by name, and salvage of one that is cut off."""
    torch.save({"a": torch.ones(400)}, tmp_path / "1.pt")
    torch.save({"b": torch.ones(400)}, tmp_path / "2.pt")
    merged = ckptdoctor.merge([tmp_path / "1.pt", tmp_path / "2.pt"], tmp_path / "both.pt")
    assert set(torch.load(merged.output)) == {"a", "b"}
    named = ckptdoctor.merge(part={"x": tmp_path / "1.pt"}, output=tmp_path / "named.safetensors")
    assert list(ckptdoctor.open(named.output)) == ["x.a"]
    (tmp_path / "cut.pt").write_bytes((tmp_path / "both.pt").read_bytes()[:-600])
    saved = ckptdoctor.salvage(tmp_path / "cut.pt", tmp_path / "saved.pt")
    assert saved.recovered == len(torch.load(saved.output)) >= 1


def test_a_page_is_written(path, tmp_path):
    """Where it is asked for, and never over another file."""
    page = ckptdoctor.report(path, output=tmp_path / "page.html")
    assert Path(page).read_text().startswith("<!doctype html>")
    (tmp_path / "mine.html").write_text("mine")
    with pytest.raises(ckptdoctor.WriteError):
        ckptdoctor.report(path, output=tmp_path / "mine.html")


def test_what_was_done_shows_itself_as_the_command_prints_it(tmp_path, monkeypatch):
    """A repair, its plan, a conversion, a salvage, a graft, a seal and a difference, each at most a screen."""
    monkeypatch.chdir(tmp_path)
    weights = {f"module.{name}": torch.ones(4) for name in ("a", "b")}
    torch.save(weights, "model.pt")
    Path("cut.pt").write_bytes(Path("model.pt").read_bytes()[:-600])
    said = {
        "fix": repr(ckptdoctor.fix("model.pt")),
        "plan": repr(ckptdoctor.fix("model.pt", "other.pt", diff=True)),
        "convert": repr(ckptdoctor.convert("model.fixed.pt", "model.safetensors")),
        "salvage": repr(ckptdoctor.salvage("cut.pt")),
        "graft": repr(ckptdoctor.graft("model.pt", "model.fixed.pt", diff=True)),
        "undo": repr(ckptdoctor.undo("model.pt")),
        "seal": repr(ckptdoctor.seal("model.pt", parity="20%")),
        "verify": repr(ckptdoctor.verify("model.pt")),
        "rebuild": repr(ckptdoctor.rebuild("model.pt")),
        "diff": repr(ckptdoctor.diff("model.pt", "model.fixed.pt")),
        "against": repr(ckptdoctor.verify("model.safetensors", against="model.fixed.pt")),
    }
    for what, words in {
        "fix": 'next · torch.load("model.fixed.pt")',
        "plan": "-module.a",
        "convert": "wrote model.safetensors",
        "salvage": "of 2 tensors recovered",
        "graft": "no known damage",
        "undo": "nothing to undo",
        "seal": "next · ckptdoctor verify model.pt",
        "verify": "as sealed",
        "rebuild": "nothing to do",
        "diff": "different names",
        "against": "model.safetensors",
    }.items():
        assert words in said[what] and "Report(" not in said[what], said[what]
        assert said[what].count("\n") < 24
    repaired = ckptdoctor.fix("model.pt", "again.pt")
    assert isinstance(repaired, ckptdoctor.RepairReport) and pickle.loads(pickle.dumps(repaired)) == repaired


def test_an_exception_is_explained_as_it_is(path):
    """With its traceback, and compared with the file."""
    try:
        nn.Linear(3, 2).load_state_dict(torch.load(path)["model"])
    except RuntimeError as error:
        explained = ckptdoctor.explain(error, path)
    assert explained.hits[0].code == "N401" and explained.verdict.confirmed
    assert "--strip-module" in repr(explained)
    assert "recognised no message" in repr(ckptdoctor.explain("all is well"))


def test_a_missing_file_is_a_file_not_found_error(tmp_path):
    """With the name, as Python's own has it."""
    with pytest.raises(FileNotFoundError) as caught:
        ckptdoctor.load(tmp_path / "absent.pt")
    assert isinstance(caught.value, ckptdoctor.UnreadableError)
    assert caught.value.filename == str(tmp_path / "absent.pt") and "No such file" in str(caught.value)


def test_progress_is_told(tmp_path):
    """From the first byte to the last, of what takes long."""
    torch.save({"w": torch.ones(3_000_000)}, tmp_path / "m.pt")
    heard = []
    ckptdoctor.check(tmp_path / "m.pt", deep=True, progress=heard.append)
    assert any("values" in each.what for each in heard) and all(each.done <= each.total for each in heard)
    heard.clear()
    ckptdoctor.convert(tmp_path / "m.pt", tmp_path / "m.safetensors", progress=heard.append)
    assert {"copying", "verifying"} <= {each.what for each in heard} and any(each.done for each in heard)


def test_numbers_and_arrays_of_numpy_are_plain(tmp_path):
    """As torch gives them to those who trust the file: every kind of number, both orders, writable."""
    numbers = {kind: np.dtype(kind).type(3) for kind in ("f8", "f4", "f2", "i8", "u1", "b1", "c16")}
    arrays = {
        "c": np.arange(6, dtype=">i4").reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "none": np.zeros((0, 2)),
        "nan": np.array([math.nan, -0.0]),
    }
    torch.save({"numbers": numbers, "arrays": arrays, "time": np.datetime64("2026-01-01")}, tmp_path / "n.pt")
    found = ckptdoctor.load(tmp_path / "n.pt")
    trusted = torch.load(tmp_path / "n.pt", weights_only=False)
    assert found["numbers"] == {kind: value.item() for kind, value in trusted["numbers"].items()}
    for name, array in trusted["arrays"].items():
        made = found["arrays"][name]
        assert (made.dtype, made.shape, made.tobytes()) == (array.dtype, array.shape, array.tobytes())
        assert made.flags.f_contiguous == array.flags.f_contiguous
    found["arrays"]["c"][0, 0] = 7
    assert type(found["time"]).__name__ == "Inert"


@pytest.mark.parametrize(
    ("code", "shape", "size"), [("f3", (2,), 6), ("i3", (1,), 3), ("f8", (0, 2**62, 2**62), 0), ("f8", (1,) * 64, 8)]
)
def test_arrays_that_numpy_cannot_have_stay_descriptions(tmp_path, code, shape, size):
    """A file may name any code and any shape: loading it is no error of NumPy's."""

    class Type:
        def __reduce__(self):
            return np.dtype, ("f8", False, True), (3, "<", None, None, None, -1, -1, 0)

    class Strange:
        def __reduce__(self):
            make = np.zeros(0).__reduce__()[0]
            return make, (np.ndarray, (0,), b"b"), (1, shape, Type(), False, bytes(size))

    path = tmp_path / "m.pt"
    torch.save({"x": Strange(), "w": 1}, path, _use_new_zipfile_serialization=False)
    lead = b"X\x02\x00\x00\x00"
    path.write_bytes(path.read_bytes().replace(lead + b"f8", lead + code.encode()))
    found = ckptdoctor.load(path)
    assert found["w"] == 1 and type(found["x"]).__name__ in ("Inert", "ndarray")
    assert (code, len(shape)) == ("f8", 64) or type(found["x"]).__name__ == "Inert"


@pytest.mark.parametrize("name", ["browse", "check", "fix", "open", "seal", "show"])
def test_examples_in_docstrings_are_true(name, monkeypatch):
    """Those of one module each, run from a clone, where the samples are."""
    monkeypatch.chdir(ROOT)
    ran = doctest.testmod(inspect.getmodule(getattr(ckptdoctor, name)))
    assert ran.attempted > 0 and ran.failed == 0


def test_every_function_of_a_command_has_an_example():
    """In its docstring, where ``help()`` shows it."""
    assert [name for name in (*COMMANDS, "list_rules") if ">>> " not in getattr(ckptdoctor, name).__doc__] == []
