from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path, PurePosixPath

import numpy
import pytest
import torch
from safetensors.torch import save_file

import ckptdoctor
from tests import commands
from tests.repair.checkpoints import load, save, training
from tests.writing.helpers import leftovers


def fix(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = commands.run("fix", *arguments, cwd=cwd, env=environment)
    assert b"Traceback" not in done.stderr
    assert leftovers(cwd) == []
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_repair_says_plan_outcome_proof_and_what_is_next(tmp_path: Path):
    """As the page of screens has it, and the file is what torch loads."""
    contents = training("module", device="cuda:0")
    del contents["view"]
    save(contents, tmp_path / "run.pt")
    run = fix("run.pt", cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = run.stdout.splitlines()
    assert lines[0].startswith("plan · 2 repairs, safe · ")
    assert lines[0].endswith(" will differ")
    assert lines[1].split() == [
        *("N401", "module-prefix", "module.{none,conv1,bn1,mlp_module,head}.*", "→"),
        *("{none,conv1,bn1,mlp_module,head}.*", "14", "keys", "of", "state_dict,", "9", "_metadata", "entries,"),
        *("9", "param_names", "entries"),
    ]
    assert lines[2].split()[:5] == ["D601", "cuda-tag", "cuda:0", "→", "cpu"]
    assert lines[3].startswith("wrote run.fixed.pt in ")
    assert lines[3].endswith(" s; the original is untouched")
    assert lines[4].startswith("verified · nothing else changed · ")
    assert " storages byte-identical · check " in lines[4]
    assert lines[-1] == 'next · torch.load("run.fixed.pt")["state_dict"]'
    assert "conv1.weight" in load(tmp_path / "run.fixed.pt", map_location=None)["state_dict"]


def test_nothing_to_repair_is_said_and_is_no_failure(tmp_path: Path):
    """No file is written."""
    save(training()["state_dict"], tmp_path / "model.pt")
    run = fix("model.pt", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (0, "model.pt · nothing to repair; nothing was written\n")
    assert os.listdir(tmp_path) == ["model.pt"]


def test_a_refusal_names_both_keys_and_the_ways_out(tmp_path: Path):
    """Exit status 1."""
    save({"encoder.norm.w": torch.ones(1), "norm.w": torch.ones(1)}, tmp_path / "m.pt")
    run = fix("m.pt", "--strip-prefix", "encoder", cwd=tmp_path)
    assert run.returncode == 1
    assert run.stdout.splitlines() == [
        "refused · --strip-prefix encoder. would give two keys one name",
        "  encoder.norm.w  →  norm.w",
        "  norm.w          is already there",
        r"  instead: --rename 'encoder\.norm=enc_norm'",
    ]
    as_json = json.loads(fix("m.pt", "--strip-prefix", "encoder", "--format", "json", cwd=tmp_path).stdout)
    assert as_json["status"] == "refused"
    assert as_json["message"].startswith("--strip-prefix encoder. would")


def test_an_existing_output_is_kept_unless_forced(tmp_path: Path):
    """The sentence says how to go on."""
    save(training("module"), tmp_path / "run.pt")
    (tmp_path / "out.pt").write_bytes(b"mine")
    run = fix("run.pt", "--strip-module", "-o", "out.pt", cwd=tmp_path)
    assert run.returncode == 1
    assert run.stdout.startswith("refused · out.pt already exists")
    assert (tmp_path / "out.pt").read_bytes() == b"mine"
    assert fix("run.pt", "--strip-module", "-o", "out.pt", "--force", cwd=tmp_path).returncode == 0
    assert "conv1.weight" in load(tmp_path / "out.pt")["state_dict"]


def test_the_original_can_be_replaced_when_forced(tmp_path: Path):
    """And the report says so."""
    save(training("module"), tmp_path / "run.pt")
    run = fix("run.pt", "--strip-module", "-o", "run.pt", "--force", cwd=tmp_path)
    assert "the original was replaced" in run.stdout
    assert "conv1.weight" in load(tmp_path / "run.pt")["state_dict"]


def test_an_output_directory_takes_the_file(tmp_path: Path):
    """Under its own name."""
    save(training("module"), tmp_path / "run.pt")
    (tmp_path / "fixed").mkdir()
    assert fix("run.pt", "--strip-module", "-o", "fixed", cwd=tmp_path).returncode == 0
    assert os.listdir(tmp_path / "fixed") == ["run.pt"]


def test_diff_shows_every_name_and_writes_nothing(tmp_path: Path):
    """Before and after, in the order of the plan."""
    save({"module.a": torch.ones(1), "module.b": torch.ones(1)}, tmp_path / "m.pt")
    run = fix("m.pt", "--diff", cwd=tmp_path)
    assert run.returncode == 0
    assert run.stdout.splitlines() == [
        "--- m.pt",
        "+++ m.fixed.pt",
        "@@ N401 module-prefix · 2 keys @@",
        *("-module.a", "+a", "-module.b", "+b"),
    ]
    assert os.listdir(tmp_path) == ["m.pt"]


def test_json_says_the_same(tmp_path: Path):
    """Steps with every pair of names, bytes, and what was proven."""
    save({"module.a": torch.ones(1), "module.b": torch.ones(1)}, tmp_path / "m.pt")
    planned = json.loads(fix("m.pt", "--diff", "--format", "json", cwd=tmp_path).stdout)
    assert (planned["status"], planned["proof"]) == ("planned", None)
    done = json.loads(fix("m.pt", "--format", "json", cwd=tmp_path).stdout)
    assert done["schema"] == "ckptdoctor/1"
    assert (done["status"], done["output"]) == ("repaired", "m.fixed.pt")
    assert done["steps"][0]["changes"] == [
        {"kind": "rename", "place": "(root)", "pairs": [["module.a", "a"], ["module.b", "b"]], "counts": {"key": 2}}
    ]
    assert done["proof"]["identical"] == done["proof"]["storages"] == 2
    assert done["bytes"]["total"] == os.path.getsize(tmp_path / "m.fixed.pt")


def test_the_request_must_make_sense(tmp_path: Path):
    """Exit status 2: no such file, no such rule, no regular expression, no such part."""
    save(training(), tmp_path / "m.pt")
    for arguments, said in [
        (("none.pt",), "none.pt cannot be opened"),
        (("m.pt", "--select", "N999"), "N999"),
        (("m.pt", "--rename", "(=x"), "is not a regular expression at character 1"),
        (("m.pt", "--root", "nowhere"), "nowhere"),
    ]:
        run = fix(*arguments, cwd=tmp_path)
        assert run.returncode == 2, run.stdout
        assert said in run.stderr


def test_what_is_asked_for_and_remains_is_status_one(tmp_path: Path):
    """A selected rule whose repair is unsafe is named with the option that admits it; files that are none as well."""
    (tmp_path / "page.pt").write_bytes(b"<!DOCTYPE html><html><title>404</title></html>")
    run = fix("page.pt", cwd=tmp_path)
    assert run.returncode == 1
    assert run.stdout.startswith("refused · ")
    save(OrderedDict({"ema.fc.weight": torch.ones(1), "ema.fc.bias": torch.ones(1)}), tmp_path / "ema.pt")
    run = fix("ema.pt", "--select", "N411", cwd=tmp_path)
    assert run.returncode == 1
    assert "N411 swa-ema-prefix" in run.stdout
    command = next(line for line in run.stdout.splitlines() if line.startswith("  repair, unsafe:")).split(":   ")[1]
    assert command == "ckptdoctor fix ema.pt --select N411 --unsafe-fixes"
    assert fix(*command.split()[2:], cwd=tmp_path).returncode == 0
    assert list(load(tmp_path / "ema.fixed.pt")) == ["fc.weight", "fc.bias"]


def test_names_from_the_file_cannot_speak_to_the_terminal(tmp_path: Path):
    """ANSI, bidi and line breaks in keys are shown, not sent, in every output."""
    evil = "\x1b[31mred\u202e\n.x"
    save({f"module.{evil}": torch.ones(1), f"module.b{evil}": torch.ones(1)}, tmp_path / "m.pt")
    save({f"module.{evil}": torch.ones(1), evil: torch.ones(1)}, tmp_path / "clash.pt")
    for arguments in (("m.pt", "--diff"), ("m.pt", "--drop", evil), ("m.pt",), ("clash.pt", "--strip-module")):
        run = fix(*arguments, cwd=tmp_path)
        assert run.returncode in (0, 1)
        assert not set("\x1b\u202e") & set(run.stdout + run.stderr)
        assert "\nred" not in run.stdout


def test_what_torch_cannot_read_is_told_how_to_be_loaded(tmp_path: Path):
    """A file in torch's old format with storages that have no type: ckptdoctor's reader is named, which reads it."""
    contents = OrderedDict({"module.a": torch.ones(2, 2).to(torch.float8_e4m3fn), "module.b": torch.ones(2)})
    torch.save(contents, tmp_path / "m.pt", _use_new_zipfile_serialization=False)
    run = fix("m.pt", "--strip-module", cwd=tmp_path)
    assert run.stdout.splitlines()[-1] == 'next · ckptdoctor.load("m.fixed.pt")'
    with pytest.raises(AttributeError):
        torch.load(tmp_path / "m.fixed.pt")
    assert list(ckptdoctor.load(tmp_path / "m.fixed.pt")) == ["a", "b"]


def test_the_only_file_of_a_folder_is_named(tmp_path: Path):
    """A model's folder with one file of weights is not said to have several."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    save_file({"module.a": torch.ones(2)}, tmp_path / "model" / "model.safetensors")
    run = fix("model", "--dtype", "float16", cwd=tmp_path)
    assert run.returncode == 1
    assert run.stdout == (
        "refused · model is a folder whose tensors are all in one file. Name that file: model/model.safetensors\n"
    )


def test_safetensors_are_told_how_to_be_loaded(tmp_path: Path):
    """By their own library."""
    save_file({"module.a": torch.ones(2)}, tmp_path / "m.safetensors")
    run = fix("m.safetensors", "--strip-module", cwd=tmp_path)
    assert run.stdout.splitlines()[-1] == 'next · safetensors.torch.load_file("m.fixed.safetensors")'


def test_torch_is_never_imported(tmp_path: Path):
    """Nor NumPy nor the browser's library, for either container."""
    save(training("module"), tmp_path / "m.pt")
    save_file({"module.a": torch.ones(2)}, tmp_path / "m.safetensors")
    code = (
        "import sys\nfrom ckptdoctor.cli.main import main\n"
        "try:\n    main(['fix', sys.argv[1], '--strip-module'])\n"
        "except SystemExit as end:\n    print(end.code, sorted({'torch', 'numpy', 'textual'} & set(sys.modules)))"
    )
    for name in ("m.pt", "m.safetensors"):
        run = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / name)], capture_output=True, text=True, check=True
        )
        assert run.stdout.splitlines()[-1] == "0 []"


def test_what_torch_refuses_becomes_plain(tmp_path: Path):
    """The plan says which classes go and what of them is left, and torch loads the output as it is."""
    contents = {"w": torch.ones(2), "args": Namespace(lr=0.1, to=PurePosixPath("a")), "mean": numpy.zeros(2)}
    torch.save(contents, tmp_path / "run.pt", pickle_protocol=4)
    run = fix("run.pt", "--weights-only-safe", cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    kinds = f"argparse.Namespace with {PurePosixPath.__module__}.PurePosixPath"
    assert f"{kinds}  →  dict" in run.stdout
    assert "mean  →  tensor" in run.stdout
    assert "pickle protocol 4  →  protocol 2" in run.stdout
    loaded = torch.load(tmp_path / "run.fixed.pt")
    assert loaded["args"] == {"lr": 0.1, "to": "a"}
    assert torch.equal(loaded["mean"], torch.zeros(2, dtype=torch.float64))
    assert torch.equal(loaded["w"], torch.ones(2))


@pytest.mark.parametrize("option", [["--drop", "*.bias"], ["--keep", "*.weight"], ["--slim"], ["--root", "state_dict"]])
def test_what_drops_something_is_a_loss_that_was_asked_for(tmp_path: Path, option: list[str]):
    """The plan calls it that, and not safe; in JSON, too. What only renames stays safe."""
    weights = {"module.w.weight": torch.ones(2), "module.w.bias": torch.ones(2)}
    torch.save({"state_dict": weights, "epoch": 3, "optimizer": {"state": {}, "param_groups": []}}, tmp_path / "m.pt")
    run = fix("m.pt", *option, "--strip-module", cwd=tmp_path)
    assert run.stdout.startswith("plan · 2 repairs, 1 of them a loss that you requested · ")
    said = json.loads(fix("m.pt", *option, "--strip-module", "--diff", "--format", "json", cwd=tmp_path).stdout)
    assert [step["safety"] for step in said["steps"]] == ["unsafe", "safe"]
    assert fix("m.pt", *option, "--force", cwd=tmp_path).stdout.startswith("plan · 1 repair, a loss that you requested")


def test_a_root_with_nothing_beside_it_loses_nothing(tmp_path: Path):
    """Taking the only part out of its dict is safe."""
    torch.save({"model": {"w": torch.ones(2)}}, tmp_path / "m.pt")
    assert fix("m.pt", "--root", "model", cwd=tmp_path).stdout.startswith("plan · 1 repair, safe · ")
