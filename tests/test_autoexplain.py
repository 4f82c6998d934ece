"""A script that dies of a checkpoint says why, in real processes."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from ckptdoctor.cli.main import cli

LOAD = "from safetensors.numpy import load_file\nload_file({path!r})\n"


@pytest.fixture
def folder(tmp_path):
    """A web page that was saved as a safetensors file, and weights of a wrapped model."""
    (tmp_path / "page.safetensors").write_bytes(b"<!DOCTYPE html><html>" * 20)
    torch.save({"module.weight": torch.zeros(2, 3), "module.bias": torch.zeros(2)}, tmp_path / "wrapped.pt")
    save_file({"a": torch.zeros(2)}, tmp_path / "good.safetensors")
    return tmp_path


def died(folder, code, *arguments, through=(), **variables):
    """What a script prints on stderr, and how it ends."""
    (folder / "script.py").write_text(code)
    command = [sys.executable, *through, "script.py", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=environment, timeout=200
    )
    return done.stderr, done.returncode


def explained(folder, code, *arguments, **variables):
    """What comes below the traceback."""
    told, status = died(folder, f"import ckptdoctor.autoexplain\n{code}", *arguments, **variables)
    assert status == 1 and told.startswith("Traceback (most recent call last):"), told
    _, _, ours = told.partition("\nckptdoctor: ")
    return ours


def test_a_cut_file_is_explained_with_both_ways_out(folder):
    """To get it again, and the command that recovers what is there."""
    torch.save({"a": torch.ones(100), "b": torch.ones(100)}, folder / "whole.pt")
    (folder / "cut.pt").write_bytes((folder / "whole.pt").read_bytes()[:-900])
    told = explained(folder, "import torch\ntorch.load('cut.pt')\n")
    last = told.strip().splitlines()[-1].strip()
    assert last == "copy or download it again, or recover what is intact:   ckptdoctor salvage cut.pt"


def test_a_wrapped_model_is_told_with_the_command_that_repairs_it(folder, monkeypatch):
    """Of two files that the script names, the one that fits the error; the command is run, and then it loads."""
    torch.save({"weight": torch.zeros(2, 3)}, folder / "other.pt")
    code = (
        "import torch\n"
        "net, output = torch.nn.Linear(3, 2), 'other.pt'\n"
        "def restore(path):\n"
        "    weights = torch.load(path)\n"
        "    net.load_state_dict(weights)\n"
        "restore('wrapped.pt')\n"
    )
    ours = explained(folder, code)
    assert ours.startswith("N401 module-prefix") and len(ours.splitlines()) <= 9
    command = ours.splitlines()[-1].split(":   ")[1]
    assert command == "ckptdoctor fix wrapped.pt --strip-module"
    monkeypatch.chdir(folder)
    assert CliRunner().invoke(cli, command.split()[1:]).exit_code == 0
    torch.nn.Linear(3, 2).load_state_dict(torch.load("wrapped.fixed.pt"))


def test_one_command_leads_from_a_lightning_checkpoint_to_a_loaded_model(tmp_path, monkeypatch):
    """The weights are one level down, under names with a prefix: to extract them alone would lead to the next error."""
    weights = {f"model.{key}": value for key, value in torch.nn.Linear(3, 2).state_dict().items()}
    torch.save(
        {"epoch": 1, "pytorch-lightning_version": "2.6", "state_dict": weights, "loops": {}}, tmp_path / "x.ckpt"
    )
    torch.save({"epoch": 1, "state_dict": weights | {"loss.weight": torch.ones(3)}}, tmp_path / "more.ckpt")
    code = "import torch\ntorch.nn.Linear(3, 2).load_state_dict(torch.load('x.ckpt'))\n"
    *_, fits, todo = explained(tmp_path, code).splitlines()
    assert fits == '  all 2 keys of the model fit after: extract state_dict and strip "model."'
    command = todo.split(":   ")[1]
    assert command == "ckptdoctor fix x.ckpt --root state_dict --strip-prefix model."
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli, command.split()[1:]).exit_code == 0
    torch.nn.Linear(3, 2).load_state_dict(torch.load("x.fixed.ckpt"))
    assert "fit after" not in explained(tmp_path, code.replace("x.ckpt", "more.ckpt"))  # a key would be left over


def test_one_command_leads_past_what_torch_refuses_and_wrappers_to_a_loaded_model(tmp_path, monkeypatch):
    """The first error names no keys: the model is in the program. One that the file fits already is left alone."""
    weights = torch.nn.Linear(3, 2).state_dict()
    held = {"args": argparse.Namespace(lr=0.1)}
    torch.save(
        held | {"model": {f"_orig_mod.module.{key}": value for key, value in weights.items()}}, tmp_path / "x.pt"
    )
    torch.save(held | {"model": weights}, tmp_path / "fits.pt")
    code = "import torch\nnet = torch.nn.Linear(3, 2)\nnet.load_state_dict(torch.load('x.pt')['model'])\n"
    *_, fits, todo = explained(tmp_path, code).splitlines()
    assert fits == "  without their prefixes, all 2 keys fit net in your program"
    command = todo.split(":   ")[1]
    assert command == "ckptdoctor fix x.pt --weights-only-safe --strip-module"
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli, command.split()[1:]).exit_code == 0
    torch.nn.Linear(3, 2).load_state_dict(torch.load("x.fixed.pt")["model"])
    assert explained(tmp_path, code.replace("x.pt", "fits.pt")).endswith("ckptdoctor fix fits.pt --weights-only-safe\n")


@pytest.mark.parametrize(
    "code",
    [
        LOAD.format(path="page.safetensors"),
        "from pathlib import Path\nwhere = Path('page.safetensors')\n" + LOAD.replace("{path!r}", "where"),
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--weights')\n"
        "arguments = parser.parse_args(['--weights', 'page.safetensors'])\n"
        + LOAD.replace("{path!r}", "arguments.weights"),
    ],
    ids=["literal", "path", "argument"],
)
def test_the_file_is_found_where_the_script_names_it(folder, code):
    """As a literal, a path, or an argument of the command line."""
    ours = explained(folder, code)
    assert "check page.safetensors" in ours or "in page.safetensors" in ours


def test_the_run_module_does_it_for_scripts_that_do_not_ask_for_it(folder):
    """Their arguments are theirs, and name the file where nothing else does; the traceback begins in the script."""
    code = "import sys\nassert sys.argv[1] == '-x' and __name__ == '__main__'\n"
    code += LOAD.replace("{path!r}", "sys.argv[2]")
    told, status = died(folder, code, "-x", "page.safetensors", through=("-m", "ckptdoctor.run"))
    assert status == 1 and told.splitlines()[1].startswith('  File "script.py", line 4'), told
    assert "\nckptdoctor: F0" in told and "page.safetensors" in told.partition("\nckptdoctor: ")[2]


@pytest.mark.parametrize(
    "code",
    ["{'a': 1}['state_dict']", "raise RuntimeError('out of luck')", "raise SystemExit(1)", "1 / 0"],
    ids=["key", "runtime", "exit", "division"],
)
def test_other_errors_are_left_alone(folder, code):
    """A KeyError of some dict, too."""
    told, status = died(folder, f"import ckptdoctor.autoexplain\n{code}")
    assert status == 1 and "ckptdoctor:" not in told


@pytest.mark.parametrize("variables", [{"CKPTDOCTOR_AUTOEXPLAIN": "0"}, {"RANK": "3"}], ids=["off", "rank"])
def test_it_can_be_turned_off_and_other_ranks_are_silent(folder, variables):
    """The traceback is Python's own."""
    assert explained(folder, LOAD.format(path="page.safetensors"), **variables) == ""


def test_the_first_rank_speaks(folder):
    """As torchrun names it."""
    assert explained(folder, LOAD.format(path="page.safetensors"), RANK="0").startswith("F0")


def test_hooks_that_were_there_come_first(folder):
    """Of the process and of threads."""
    code = (
        "import sys, threading\n"
        "sys.excepthook = lambda *what: print('mine', what[0].__name__, file=sys.stderr)\n"
        "threading.excepthook = lambda what: print('thread', what.exc_type.__name__, file=sys.stderr)\n"
        "import ckptdoctor.autoexplain\n"
        "from safetensors.numpy import load_file\n"
        "thread = threading.Thread(target=load_file, args=('page.safetensors',))\n"
        "thread.start()\n"
        "thread.join()\n"
        "load_file('page.safetensors')\n"
    )
    told, status = died(folder, code)
    words = [line.split()[0] for line in told.splitlines() if line and not line.startswith(" ")]
    assert (words, status) == (["thread", "ckptdoctor:", "mine", "ckptdoctor:"], 1)


def test_nothing_of_the_program_is_called_or_kept(folder):
    """Objects in frames that shout when they are shown, and one that says when it is gone."""
    code = (
        "import sys, weakref\n"
        "class Loud:\n"
        "    def __getattr__(self, name):\n"
        "        print('LOUD', name, file=sys.stderr)\n"
        "        raise AttributeError(name)\n"
        "    def __repr__(self):\n"
        "        print('LOUD', file=sys.stderr)\n"
        "        return ''\n"
        "    __str__ = __fspath__ = __repr__\n"
        "    def __eq__(self, other):\n"
        "        print('LOUD', file=sys.stderr)\n"
        "    __hash__ = None\n"
        "from safetensors.numpy import load_file\n"
        "def restore():\n"
        "    loud, kept = Loud(), Loud.__new__(Loud)\n"
        "    weakref.finalize(kept, print, 'gone', file=sys.stderr)\n"
        "    load_file('page.safetensors')\n"
        "import ckptdoctor.autoexplain\n"
        "try:\n"
        "    restore()\n"
        "except Exception as error:\n"
        "    sys.excepthook(type(error), error, error.__traceback__)\n"
        "print('after', file=sys.stderr)\n"
    )
    told, status = died(folder, code)
    assert status == 0 and "LOUD" not in told
    assert told.index("ckptdoctor: ") < told.index("gone") < told.index("after")


def test_a_fault_of_its_own_never_hides_the_error(folder):
    """It is one line below the traceback; a closed stderr is nothing to tell."""
    code = (
        "import ckptdoctor.autoexplain, sys\n"
        "import ckptdoctor.explaining.explanation as ours\n"
        "def broken(raw): raise ValueError('secret')\n"
        "ours.explain = broken\n"
    ) + LOAD.format(path="page.safetensors")
    told, status = died(folder, code)
    assert status == 1 and "SafetensorError" in told
    assert told.splitlines()[-1] == "ckptdoctor: this error could not be explained (ValueError)."
    assert died(folder, "import ckptdoctor.autoexplain, sys\nsys.stderr.close()\n1 / 0\n")[1] == 1


def test_importing_it_brings_next_to_nothing():
    """No torch, no numpy, and of ours only what is above."""
    code = "import sys; before = set(sys.modules); import ckptdoctor.autoexplain; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.split() if name.startswith("ckptdoctor")}
    assert ours == {"ckptdoctor", "ckptdoctor.autoexplain"}
    assert not {"torch", "numpy", "click", "traceback"} & set(done.stdout.split())
