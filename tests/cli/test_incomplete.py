"""Folders of shards of which one is missing or damaged, in every command that reads them: never taken for the whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ckptdoctor.cli import main
from tests import broken_shards
from tests.broken_shards import SECOND, folder, name, tensors

KINDS = [("bin", "cut"), ("bin", "missing"), ("safetensors", "beheaded"), ("safetensors", "missing")]
MISSING = f"{name(2)} is missing, with 8 tensors of the index."


@pytest.fixture
def run(tmp_path, monkeypatch, capsysbinary):
    """Runs a command line in an empty directory, within this process."""
    monkeypatch.chdir(tmp_path)

    def ask(*arguments):
        status = main.run(list(arguments))
        out, err = capsysbinary.readouterr()
        return subprocess.CompletedProcess(arguments, status, out.decode(), err.decode())

    return ask


@pytest.mark.parametrize("index", [True, False], ids=["index", "no index"])
@pytest.mark.parametrize(("suffix", "damage"), KINDS)
@pytest.mark.parametrize(
    "command",
    [("convert", "m", "out.safetensors"), ("convert", "m", "out", "--to", "dcp"), ("merge", "m", "-o", "out.pt")],
    ids=["safetensors", "dcp", "merge"],
)
def test_what_is_left_is_not_written_as_the_whole(run, command, suffix, damage, index):
    """The refusal names the file, why, and the command that saves the rest; the status is 1, and nothing is written."""
    folder("m", suffix, damage, index=index)
    done = run(*command)
    assert done.returncode == 1 and done.stdout.count("\n") == 1
    assert done.stdout.startswith(f"refused · m: {name(2, suffix)}")
    assert ("is missing" if damage == "missing" else "cannot be read: ") in done.stdout
    assert ("with 8 tensors of the index" in done.stdout) is index
    assert done.stdout.endswith("in its place, or recover what is intact: ckptdoctor salvage m\n")
    assert os.listdir() == ["m"]


def test_what_was_salvaged_first_is_converted(run):
    """After the command that the refusal names the conversion goes through, with what is whole."""
    folder("m", damage="missing")
    assert run("salvage", "m", "-o", "rest").returncode == 1
    assert run("convert", "rest", "out.safetensors").returncode == 0
    assert load_file("out.safetensors").keys() == tensors().keys() - SECOND


def test_a_part_that_is_all_there_is_converted(run):
    """With --root only files count that may hold something of it."""
    folder("m", damage="missing")
    with open("m/trainer_state.json", "w") as out:
        out.write("{}")
    torch.save({"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": []}, "m/optimizer.pt")
    assert run("convert", "m", "all.pt").returncode == 1
    assert run("convert", "m", "model.pt", "--root", "model").returncode == 1
    assert run("convert", "m", "optimizer.pt", "--root", "optimizer").returncode == 0
    assert sorted(os.listdir()) == ["m", "optimizer.pt"]


def test_json_says_the_refusal(run):
    """The document of a refused conversion has the sentence."""
    folder("m", damage="missing")
    done = run("convert", "m", "out.pt", "--format", "json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["message"].startswith(f"m: {MISSING}")


@pytest.mark.parametrize(
    "options", [(), ("--keys",), ("--devices",), ("--stats",), ("--filter", "model.*"), ("--format", "json")], ids=str
)
def test_show_says_what_it_does_not_show(run, options):
    """One line on stderr names the file that is missing, in every view; stdout is what there is."""
    folder("m", damage="missing")
    done = run("show", "m", *options)
    assert done.returncode == 0
    assert f"{MISSING} Its content is not shown. More: ckptdoctor check m\n" in done.stderr
    assert done.stdout and MISSING not in done.stdout


def test_show_says_nothing_of_a_whole_folder(run):
    """Where every shard is there, stderr is empty."""
    folder("m")
    assert not run("show", "m").stderr


@pytest.mark.parametrize(("suffix", "damage"), KINDS)
@pytest.mark.parametrize("turned", [False, True], ids=["A", "B"])
def test_diff_does_not_call_lost_tensors_new(run, suffix, damage, turned):
    """Tensors that the index puts in the file are told apart, in the sentence, in the list, on stderr and in JSON."""
    folder("broken", suffix, damage)
    folder("whole", suffix)
    sides = ("whole", "broken") if turned else ("broken", "whole")
    mark, other = ("B", "A") if turned else ("A", "B")
    done = run("diff", *sides)
    assert done.returncode == 1
    why = f"in missing or damaged files of {mark}"
    assert f"; 8 tensors only in {other} ({why})\n" in done.stdout
    assert f"only in {other}   8 tensors  model.layers.{{2..3}}.{{a,b,c,d}}.weight  {why}\n" in done.stdout
    assert done.stderr.startswith(f"{mark}: {name(2, suffix)}")
    assert done.stderr.endswith("was not compared. More: ckptdoctor check broken\n")
    told = json.loads(run("diff", *sides, "--format", "json").stdout)
    assert [each["lost"] for each in told["removed" if turned else "added"]] == [True] * 8
    assert told["not_examined"][0].startswith(f"{mark}: {name(2, suffix)}")


def test_diff_says_which_tensors_are_lost_and_which_are_new(run):
    """A tensor that the broken side never had is none of those of the missing file."""
    folder("broken", damage="missing")
    torch.save(tensors() | {"extra.weight": torch.ones(3)}, "whole.pt")
    done = run("diff", "broken", "whole.pt", "--all")
    assert "9 tensors only in B (8 of them in missing or damaged files of A)" in done.stdout
    (extra,) = [line for line in done.stdout.splitlines() if "extra.weight" in line]
    assert extra.endswith("[3] float32")
    assert done.stdout.count("[16, 16] float32, in missing or damaged files of A\n") == 8


def test_diff_of_two_incomplete_folders(run):
    """What both lack is nowhere else to be seen: the sentence says so."""
    folder("a", damage="missing")
    folder("b", damage="missing", index=False)
    done = run("diff", "a", "b", "--values")
    assert done.returncode == 0
    assert "identical, bit for bit; files of A and B are missing or damaged\n" in done.stdout
    assert [line[:2] for line in done.stderr.splitlines()] == ["A:", "B:"]


@pytest.mark.parametrize("command", [("check", "whole.pt"), ("fix", "whole.pt", "--auto", "-o", "out.pt")], ids=str)
def test_an_incomplete_folder_is_no_target(run, command):
    """--like refuses it with the file that is missing, and nothing is written."""
    folder("m", damage="missing")
    torch.save(tensors(), "whole.pt")
    done = run(*command, "--like", "m")
    assert done.returncode == 2
    assert f"m is incomplete, so nothing can be compared with it: {MISSING} Name a complete copy." in done.stderr
    assert sorted(os.listdir()) == ["m", "whole.pt"]


@pytest.mark.parametrize(("suffix", "damage"), KINDS)
def test_fix_writes_no_index_without_the_tensors(run, suffix, damage):
    """An index that is wrong as well stays as it is while a shard is missing or damaged."""
    folder("m", suffix, damage)
    (index,) = [each for each in os.listdir("m") if each.endswith(".json")]
    with open(f"m/{index}") as source:
        listed = json.load(source)
    del listed["weight_map"]["model.layers.0.a.weight"]
    with open(f"m/{index}", "w") as out:
        json.dump(listed, out)
    before = sorted(os.listdir("m"))
    done = run("fix", "m", "--unsafe-fixes", "--force")
    assert "nothing was written" in done.stdout and "X801" in done.stdout
    assert sorted(os.listdir("m")) == before
    with open(f"m/{index}") as source:
        assert json.load(source) == listed


@pytest.fixture
def hurt(tmp_path):
    """Makes a file of all tensors, one of which does not match its checksum."""

    def make(key):
        torch.save(tensors(), tmp_path / "bad.pt")
        data = bytearray((tmp_path / "bad.pt").read_bytes())
        data[data.index(tensors()[key].numpy().tobytes())] ^= 24  # two bits: one would need no other copy
        (tmp_path / "bad.pt").write_bytes(data)

    return make


def test_graft_from_an_incomplete_folder_says_so(run, hurt):
    """What its other files have is taken, and the note names the file that is missing."""
    folder("m", damage="missing")
    hurt("model.layers.0.a.weight")
    done = run("graft", "bad.pt", "--from", "m", "-o", "out.pt")
    assert done.returncode == 0
    assert f"note · not examined: m: {MISSING[:-1]}\n" in done.stdout
    assert torch.load("out.pt", weights_only=True).keys() == tensors().keys()


def test_graft_of_what_lies_in_the_missing_file_is_refused(run, hurt):
    """The refusal names the file, and nothing is written."""
    folder("m", damage="missing")
    hurt(SECOND[0])
    done = run("graft", "bad.pt", "--from", "m", "-o", "out.pt")
    assert done.returncode == 1
    assert "the other copy has no such tensor" in done.stdout and MISSING[:-1] in done.stdout
    assert sorted(os.listdir()) == ["bad.pt", "m"]


def folder_that_names(file):
    """The folder "m" without its second shard, which the index calls so, as JSON writes it."""
    folder("m", damage="missing")
    index = Path("m/model.safetensors.index.json")
    index.write_text(index.read_text().replace(name(2), file))


def test_names_of_files_are_escaped(run):
    """A file name that would write into the terminal does not."""
    folder_that_names("\\u001b[2Jx.safetensors")
    shutil.copytree("m", "copy")
    for command in (("show", "m"), ("diff", "m", "copy"), ("convert", "m", "out.pt")):
        done = run(*command)
        assert "\x1b" not in done.stdout + done.stderr
        assert "x.safetensors is missing" in done.stdout + done.stderr


def test_a_distributed_checkpoint_without_its_values(run):
    """Its list tells every tensor: it is shown and compared with, and only the values are said to be missing."""
    torch.save({"w": torch.ones(3)}, "whole.pt")
    assert run("convert", "whole.pt", "m", "--to", "dcp").returncode == 0
    (values,) = [each for each in os.listdir("m") if each.endswith(".distcp")]
    os.remove(f"m/{values}")
    said = f"{values} is missing. The values in it are not there. More: ckptdoctor check m\n"
    done = run("show", "m", "--keys")
    assert done.stdout.startswith("w  [3]  float32") and done.stderr == said
    assert run("diff", "m", "whole.pt").stderr == f"A: {said}"
    assert run("check", "whole.pt", "--like", "m").returncode == 0
    done = run("convert", "m", "out.pt")
    assert done.returncode == 1
    assert (
        f"m: {values} is missing. Put the real file in its place, or look closer: ckptdoctor check m\n" in done.stdout
    )
    assert sorted(os.listdir()) == ["m", "whole.pt"]


def test_a_file_outside_of_the_folder_is_not_written_either(run):
    """The refusal names it once, with the path of the folder in front."""
    folder_that_names("../x.safetensors")
    done = run("convert", "m", "out.pt")
    assert done.returncode == 1
    assert done.stdout.startswith('refused · m: the name "../x.safetensors" leads out of the folder')
    assert os.listdir() == ["m"]


def test_what_an_index_names_in_vain_is_told(run):
    """A tensor of the index that no shard has is a line of convert, of show and of diff, and a field of JSON."""
    folder("m", damage="")
    index = Path("m/model.safetensors.index.json")
    written = json.loads(index.read_text())
    written["weight_map"]["head.bias"] = name(1)
    index.write_text(json.dumps(written))
    told = "model.safetensors.index.json names head.bias, which is in none of the files"
    done = run("convert", "m", "out.safetensors")
    assert done.returncode == 0 and f"  lacking   {told}\n" in done.stdout
    assert json.loads(run("convert", "m", "out.pt", "--format", "json").stdout)["absent"] == [told]
    assert f"{told}. More: ckptdoctor check m\n" in run("show", "m").stderr
    assert told in run("diff", "m", "out.pt").stderr


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("m/*.safetensors", f"m/{name(2)}, which is not among the files"),
        (f"m/{name(1)}", f"m/{name(2)}, m/{name(3)}, which are not among the files"),
    ],
    ids=["a pattern", "a file"],
)
def test_numbered_files_that_were_not_named_are_told(run, named, told):
    """Shards merged by their own names: a line for those that their numbers speak of and that were not given."""
    folder("m", damage="missing", index=False)
    done = run("merge", named, "-o", "out.safetensors")
    assert done.returncode == 0 and f"  lacking   {told}\n" in done.stdout


def test_many_numbered_files_that_were_not_named_are_counted(run):
    """Of a hundred shards of which one is given, four are named."""
    save_file(tensors(), "big-00001-of-00100.safetensors", {"format": "pt"})
    done = run("convert", "big-00001-of-00100.safetensors", "out.pt", "--format", "json")
    (told,) = json.loads(done.stdout)["absent"]
    assert told.startswith("big-00002-of-00100.safetensors, big-00003-of-00100.safetensors, ")
    assert told.endswith("00005-of-00100.safetensors and 95 more shards, which are not among the files")


def test_all_numbered_files_lack_nothing(run):
    """A whole set of shards by a pattern: nothing is said to be lacking."""
    folder("m", damage="")
    done = run("merge", "m/*.safetensors", "-o", "out.safetensors")
    assert done.returncode == 0 and "lacking" not in done.stdout


@pytest.mark.parametrize("damage", ["cut", "beheaded", "empty"])
@pytest.mark.parametrize("file", ["optimizer.pt", "rng_state.pth"])
def test_the_model_beside_a_damaged_file_is_converted(run, file, damage):
    """Of a Trainer's checkpoint whose optimizer or random state is damaged, ``--root model`` is written whole."""
    os.mkdir("m")
    Path("m/trainer_state.json").write_text("{}")
    save_file(tensors(), "m/model.safetensors", {"format": "pt"})
    for beside in ("optimizer.pt", "rng_state.pth"):
        torch.save({"state": torch.randn(3000)}, f"m/{beside}")
    broken_shards.hurt(f"m/{file}", damage)
    refused = run("convert", "m", "all.pt")
    assert refused.returncode == 1 and file in refused.stdout and not os.path.exists("all.pt")
    assert "ckptdoctor salvage m\n" not in refused.stdout  # it takes the file, not such a folder
    assert run("convert", "m", "out.safetensors", "--root", "model").returncode == 0
    written = load_file("out.safetensors")
    assert all(torch.equal(written[key], value) for key, value in tensors().items())
    spoiled = run("convert", "m", "part.safetensors", "--root", file.partition(".")[0])
    assert spoiled.returncode in (1, 2) and not os.path.exists("part.safetensors")


def test_check_of_a_trainers_folder_speaks_of_its_files(run):
    """Nothing is said of weights "under model", which are a file; nor that an unreadable optimizer is not there."""
    os.mkdir("m")
    Path("m/trainer_state.json").write_text("{}")
    save_file(tensors(), "m/model.safetensors", {"format": "pt"})
    torch.save({"state": {0: {"exp_avg": torch.randn(3000)}}, "param_groups": [{"params": [0]}]}, "m/optimizer.pt")
    whole = run("check", "m")
    assert whole.returncode == 0 and "W301" not in whole.stdout
    broken_shards.hurt("m/optimizer.pt", "beheaded")
    hurt_one = run("check", "m")
    assert hurt_one.returncode == 1
    assert "X801" in hurt_one.stdout and "O754" not in hurt_one.stdout and "W301" not in hurt_one.stdout


def test_salvage_is_named_with_the_file_that_it_takes(run):
    """A Trainer's folder with a model that was cut: the command that the refusal names saves what is whole of it."""
    os.mkdir("m")
    Path("m/trainer_state.json").write_text("{}")
    save_file(tensors(), "m/model.safetensors", {"format": "pt"})
    torch.save({"state": {}, "param_groups": []}, "m/optimizer.pt")
    broken_shards.hurt("m/model.safetensors", "cut")
    refused = run("convert", "m", "all.pt")
    assert (
        refused.returncode == 1 and "Recover what is intact: ckptdoctor salvage m/model.safetensors" in refused.stdout
    )
    assert run("salvage", "m/model.safetensors", "-o", "rest.safetensors").returncode == 1
    assert set() < load_file("rest.safetensors").keys() < tensors().keys()


def test_a_chain_that_fix_would_refuse_is_not_offered(run):
    """Of a folder check says how much fits after which steps, and names no command that refuses folders."""
    os.mkdir("m")
    Path("m/trainer_state.json").write_text("{}")
    save_file(tensors(), "m/model.safetensors", {"format": "pt"})
    torch.save({"state": {}, "param_groups": []}, "m/optimizer.pt")
    said = run("check", "m", "--like", "m/model.safetensors").stdout
    assert "24 of 24 after 1 step" in said and "ckptdoctor fix" not in said
    assert "ckptdoctor convert m m.safetensors --root model" in said
