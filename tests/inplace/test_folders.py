"""The promises of docs/in-place.md for a folder of shards: all of its files change together, or none does."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp

from ckptdoctor.checkpoint import FileSource
from ckptdoctor.inplace import changing
from ckptdoctor.inplace.change import in_place
from ckptdoctor.inplace.disk import SystemDisk
from ckptdoctor.repair.plan import plan
from ckptdoctor.repair.request import FixRequest
from tests.builders import saving_tags, tagged
from tests.commands import run_here
from tests.inplace.test_crashes import Story, ask_of
from tests.inplace.test_promises import LONGER, SHORTER, fix, is_killed, killed, undo

KINDS = ["safetensors", "bin"]


def shards(folder, kind="safetensors", wrap=lambda tensor: tensor):
    """Three shards and their index, as transformers writes them; the third has no key with a wrapper's prefix."""
    folder.mkdir()
    stem = "model" if kind == "safetensors" else "pytorch_model"
    torch.manual_seed(1)
    table, total = {}, 0
    for number in range(3):
        name = f"{stem}-{number + 1:05}-of-00003.{kind}"
        prefix = "module." if number < 2 else ""
        tensors = {f"{prefix}layer{number}.{leaf}": wrap(torch.randn(30, 50)) for leaf in ("weight", "bias")}
        if kind == "safetensors":
            safetensors.torch.save_file(tensors, folder / name, {"format": "pt"})
        else:
            torch.save(tensors, folder / name)
        table |= dict.fromkeys(tensors, name)
        total += sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": table}
    (folder / f"{stem}.{kind}.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """One such folder of each kind."""
    place = tmp_path_factory.mktemp("saved")
    return {kind: shards(place / kind, kind) for kind in KINDS}


@pytest.fixture(params=KINDS)
def folder(request, saved, tmp_path):
    """A copy of one of them."""
    return Path(shutil.copytree(saved[request.param], tmp_path / "m"))


@pytest.fixture
def one(saved, tmp_path):
    """A copy of that of safetensors, for what does not depend on the format."""
    return Path(shutil.copytree(saved["safetensors"], tmp_path / "m"))


def state(folder):
    """All files of the folder but its journals: their bytes and times."""
    names = sorted(path for path in folder.iterdir() if "ckptdoctor-undo" not in path.name)
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in names}


def bytes_in(folder):
    """The same without times: reserving space changes that of a file."""
    return {name: data for name, (data, _) in state(folder).items()}


def loaded(folder):
    """What a loader finds by the index: each tensor in the file that the index names."""
    (index,) = folder.glob("*.index.json")
    found = {}
    for key, name in json.loads(index.read_text())["weight_map"].items():
        path = folder / name
        held = safetensors.torch.load(path.read_bytes()) if path.suffix == ".safetensors" else torch.load(path)
        found[key] = held[key].clone()
    return found


def told(*line, cwd):
    """What a command says, and its status."""
    done = run_here(*line, cwd=cwd)
    return done.returncode, (done.stdout + done.stderr).decode()


# ---- what becomes of the files


def test_shards_and_index_get_the_new_names_and_undo_gives_all_of_them_back(folder):
    """One change after another, with the bytes and times that each file had; tensors are where they were."""
    before, states = loaded(folder), [state(folder)]
    shorter = {key.removeprefix("module."): tensor for key, tensor in before.items()}
    for options, wanted in (
        (SHORTER, shorter),
        (LONGER, {LONGER[1] + key: tensor for key, tensor in shorter.items()}),
    ):
        status, said = fix(folder, *options)
        assert status == 0
        assert "6 storages not written" in said or "moved to the end" in said
        assert 'next · AutoModel.from_pretrained("m/")' in said
        after = loaded(folder)
        assert after.keys() == wanted.keys()
        assert all(torch.equal(after[key], wanted[key]) for key in wanted)
        states.append(state(folder))
    assert states[1]["config.json"] == states[0]["config.json"]
    third = next(name for name in states[0] if "-00003-of-" in name)
    assert states[1][third] == states[0][third]  # it has none of the names that changed
    assert [each["number"] for each in json.loads(undo(folder, "--list", "--format", "json")[1])["changes"]] == [2, 1]
    for number in (1, 0):
        status, said = undo(folder)
        assert (status, said.partition(" (")[0]) == (0, f"restored m as it was before change {number + 1}")
        assert state(folder) == states[number]
    assert "nothing to undo" in undo(folder)[1]
    assert not list(folder.glob(".*"))


def test_the_index_keeps_its_order_and_style(one):
    """Only the names in it are others."""
    index = one / "model.safetensors.index.json"
    text = index.read_text()
    for said in (text, text[:-1], json.dumps(json.loads(text)), json.dumps(json.loads(text), indent=4) + "\n"):
        index.write_text(said)
        assert fix(one, *SHORTER)[0] == 0
        assert index.read_text() == said.replace('"module.', '"')
        assert undo(one)[0] == 0


def test_device_tags_of_shards_change_too(tmp_path):
    """The index does not say them, and stays."""
    with saving_tags():
        folder = shards(tmp_path / "m", "bin", lambda tensor: tagged(tensor, "cuda:1"))
    before = state(folder)
    assert fix(folder, "--to-cpu")[0] == 0
    assert {str(tensor.device) for tensor in loaded(folder).values()} == {"cpu"}
    assert state(folder)["pytorch_model.bin.index.json"] == before["pytorch_model.bin.index.json"]
    assert undo(folder)[0] == 0
    assert state(folder) == before


def test_shards_without_an_index_change_too(one):
    """They number themselves; that transformers does not find them without an index is still reported."""
    (one / "model.safetensors.index.json").unlink()
    before = state(one)
    status, said = fix(one, *SHORTER)
    assert (status, "check still finds X804" in said) == (1, True)
    assert not any(b"module." in data for data, _ in state(one).values())
    assert undo(one)[0] == 0
    assert state(one) == before


def test_diff_of_a_folder_writes_nothing(one):
    """It is a plan."""
    before = state(one)
    status, said = fix(one, *SHORTER, "--diff")
    assert (status, "module.layer0.weight" in said) == (0, True)
    assert state(one) == before
    assert not list(one.glob(".*"))


# ---- an interrupted folder


def test_killed_in_any_write_the_folder_is_interrupted_and_undo_restores_it(folder):
    """The first write is that of the journal; then every file changes, the index last."""
    before, stopped = bytes_in(folder), 0
    while is_killed(folder, stopped, *SHORTER):
        status, said = told("check", "m", cwd=folder.parent)
        if stopped:
            assert (status, "F018" in said, "ckptdoctor undo m" in said) == (1, True, True)
            assert undo(folder)[0] == 0
        for left in folder.glob(".*"):  # of a journal that was not complete
            left.unlink()
        assert bytes_in(folder) == before
        stopped += 1
    assert stopped >= 4
    assert undo(folder)[0] == 0
    assert bytes_in(folder) == before


def test_every_door_says_that_a_shard_the_index_or_the_folder_is_interrupted(one, tmp_path):
    """With the command that restores the folder. What is next to them and no part of the change is not."""
    shutil.copy(one / "model-00003-of-00003.safetensors", one / "other.safetensors")
    killed(one, *SHORTER)
    shard, index = "m/model-00001-of-00003.safetensors", "m/model.safetensors.index.json"
    lines = [
        *[[command, path] for path in ("m", shard) for command in ("check", "show", "fix", "seal")],
        *[["convert", path, "out.pt"] for path in ("m", shard)],
        *[["diff", path, "m/other.safetensors"] for path in ("m", shard)],
        *[["salvage", path, "-o", "out"] for path in ("m", shard)],
        ["fix", "m", "--in-place", "--strip-module"],
        ["fix", shard, "--in-place", "--strip-module"],
        ["undo", shard],
        ["undo", index],
        ["check", index],
        ["show", index],
        ["check", "m/other.safetensors", "--like", shard],
    ]
    for line in lines:
        status, said = told(*line, cwd=tmp_path)
        assert status in (1, 2), line
        assert "ckptdoctor undo m" in said, (line, said)
    assert told("check", "m/other.safetensors", cwd=tmp_path)[0] == 0
    for path in ("m", "."):  # the whole folder once, not each shard
        report = json.loads(told("check", path, "--format", "json", cwd=tmp_path)[1])
        (file,) = [each for each in report["files"] if each["path"] != "m/other.safetensors"]
        assert [os.path.normpath(file["path"]), file["findings"][0]["code"]] == ["m", "F018"]
    assert "interrupted" in undo(one, "--list")[1]
    code = f"import ckptdoctor; ckptdoctor.load({str(tmp_path / shard)!r})"
    with pytest.raises(Exception, match="ckptdoctor undo"):
        exec(code, {})
    assert undo(one)[0] == 0
    assert told("check", shard, cwd=tmp_path)[0] == 1  # its wrapper's prefix is back


def test_latest_passes_over_a_folder_that_is_interrupted(saved, tmp_path):
    """And says why."""
    for step in (5, 10):
        shutil.copytree(saved["safetensors"], tmp_path / f"checkpoint-{step}")
    killed(tmp_path / "checkpoint-10", *SHORTER)
    status, said = told("latest", ".", cwd=tmp_path)
    assert (status, "checkpoint-5\n" in said) == (0, True)
    assert "passed over checkpoint-10: a change in place was not completed (F018" in said


def test_a_shard_is_not_undone_without_the_others(one):
    """The whole change is, and a later change of one shard comes first."""
    before = state(one)
    assert fix(one, *SHORTER)[0] == 0
    shard = one / "model-00001-of-00003.safetensors"
    status, said = told("undo", shard.name, cwd=one)
    assert (status, "can only be undone for all of them: ckptdoctor undo ." in said) == (1, True)
    assert "nothing to undo" in told("undo", "config.json", cwd=one)[1]
    assert fix(shard, *LONGER)[0] == 0
    assert "changed after it was fixed in place" in undo(one)[1]
    assert told("undo", shard.name, cwd=one)[0] == 0
    assert undo(one)[0] == 0
    assert state(one) == before


def crash_story(folder, **options):
    """The change of real shards and their index, on the disk that records, with what comes of it."""
    files = plan(FixRequest(str(folder), in_place=True, **options)).files
    changes = []
    for each in files:
        with FileSource(folder / each.name) as source:
            changes.append(in_place(each.recipe, each.name, source.size, source.read))
    story = Story.of(folder, changes, [(folder / each.name).read_bytes() for each in changes])
    story.run()
    return story, story.contents(story.disk)


OPTIONS = {"shorter": {"strip_module": True}, "longer": {"add_prefix": LONGER[1]}}


@pytest.mark.parametrize("options", OPTIONS)
def test_no_crash_leaves_half_a_folder(folder, options):
    """Shards and index are all old or all new, or their one journal makes them old again."""
    story, new = crash_story(folder, **OPTIONS[options])
    assert len(new) == (3 if options == "shorter" else 4)
    ask_of(story, new, 12, random.Random(options))


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
def test_thousands_of_crashes_leave_no_half_folder(folder, options):
    """Of the change 500, of undoing it 500, and restoring is killed in each."""
    story, new = crash_story(folder, **OPTIONS[options])
    ask_of(story, new, 500, random.Random(f"more {options}"))


def test_a_folder_that_is_not_verified_is_taken_back(folder, monkeypatch):
    """A fault of the disk in the last file restores all of them."""
    before, real = state(folder), changing._write

    def wrong(disk, fd, change, record):
        real(disk, fd, change, record)
        if change.name.endswith(".json"):
            os.pwrite(fd, b"?", change.writes[0].at + 5)

    monkeypatch.setattr(changing, "_write", wrong)
    status, said = fix(folder, *SHORTER)
    assert (status, "differs from the plan" in said) == (1, True)
    assert state(folder) == before
    assert not list(folder.glob(".*"))


# ---- refused before anything is written


def refused(folder, *options):
    """The reason of a refusal, after which nothing is different and nothing was left behind."""
    before, names = state(folder), sorted(os.listdir(folder))
    status, said = fix(folder, *SHORTER, *options)
    assert (status, said.startswith("refused")) == (1, True), said
    assert state(folder) == before
    assert sorted(os.listdir(folder)) == names
    return said


SHARD = "model-00002-of-00003.safetensors"


def test_a_shard_with_hard_links_is_refused(one):
    """Another folder may have it, too."""
    os.link(one / SHARD, one.with_name("elsewhere"))
    assert f"m/{SHARD} is one of 2 names (hard links)" in refused(one)


def test_a_shard_that_is_a_symbolic_link_is_refused(one):
    """As all are in the cache of Hugging Face; the index as well."""
    for name in (SHARD, "model.safetensors.index.json"):
        real = one.parent / name
        shutil.move(one / name, real)
        (one / name).symlink_to(real)
        said = refused(one)
        assert f"m/{name} is a symbolic link" in said
        assert "add -o OUT/" in said
        (one / name).unlink()
        shutil.move(real, one / name)
    one.with_name("link").symlink_to(one)
    assert "is a symbolic link to" in fix(one.with_name("link"), *SHORTER)[1]


def test_a_shard_that_is_read_only_is_refused(one, monkeypatch):
    """Root may write everything, so the system is asked in its place."""
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith(SHARD) and real(path, mode))
    assert f"m/{SHARD} cannot be fixed in place: the file or its folder is read-only" in refused(one)
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("m"))
    assert "the folder is read-only" in refused(one)


def test_a_shard_that_is_locked_is_refused(one):
    """By a process that writes it."""
    with open(one / SHARD, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert f"{SHARD} is locked by another process" in refused(one)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has a file open")
def test_a_shard_that_is_open_elsewhere_is_refused(one):
    """With the name of the program."""
    code = "import sys; file = open(sys.argv[1]); print('ready', flush=True); sys.stdin.read()"
    line = [sys.executable, "-S", "-c", code, str(one / SHARD)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        said = refused(one)
        assert f"m/{SHARD} is open in" in said
        assert f"(process {other.pid})" in said
        other.communicate()


def test_a_folder_without_one_of_its_shards_is_refused(one):
    """Its names would stay as they were, wherever it is."""
    (one / SHARD).unlink()
    assert f"{SHARD} is missing" in refused(one)


def test_an_index_of_other_shards_is_refused(one):
    """Which of the two is right, a change of names must not decide."""
    index = one / "model.safetensors.index.json"
    said = json.loads(index.read_text())
    del said["weight_map"]["module.layer0.bias"]
    index.write_text(json.dumps(said))
    assert "its index is not that of the shards" in refused(one)


def test_values_and_other_kinds_of_folders_are_refused_with_what_writes_a_new_one(one, tmp_path):
    """A cast, tensors that are left out, and a folder of torch.distributed."""
    for options in (("--dtype", "bf16"), ("--drop", "layer2.bias")):
        status, said = fix(one, *options)
        assert status == 1
        assert "-o m.fixed/" in said
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"module.a": torch.ones(2)}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    assert "which is not repaired in place" in fix(tmp_path / "dcp", *SHORTER)[1]


def test_a_full_disk_leaves_every_shard(one, monkeypatch):
    """Wherever space is asked for."""
    before, number = state(one), 0
    while True:
        left = [number]

        def full(self, fd, offset, length, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(SystemDisk, "reserve", full)
        status, said = fix(one, *LONGER)
        if status == 0:
            assert number >= 4
            return
        assert "Not enough disk space" in said
        assert state(one) == before
        assert not list(one.glob(".*"))
        number += 1


# ---- the journal


def test_a_journal_that_does_not_match_restores_no_shard(one):
    """One byte of one shard is enough, and a shard that is gone."""
    assert fix(one, *SHORTER)[0] == 0
    shard = one / SHARD
    data, times = shard.read_bytes(), shard.stat()
    shard.write_bytes(data.replace(b"layer1.bias", b"layer1.baas", 1))
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))
    after = state(one)
    assert "cannot be undone" in undo(one)[1]
    assert state(one) == after
    shard.unlink()
    assert f"{SHARD} is missing, so nothing was restored" in undo(one)[1]
    shard.write_bytes(data)
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert undo(one)[0] == 0


def test_a_journal_of_a_stranger_is_about_weights_only(one):
    """Not about a program that is in the folder, whatever checksum it has."""
    assert fix(one, *SHORTER)[0] == 0
    (one / "train.py").write_text("print(1)")
    (journal,) = one.glob(".*undo*")
    data = journal.read_bytes()
    head = data.index(b"\n") + 9  # behind the length
    length = int.from_bytes(data[head - 8 : head], "little")
    held = json.loads(data[head : head + length])
    held["files"][1]["name"] = "train.py"
    text = json.dumps(held).encode()
    made = data[: head - 8] + len(text).to_bytes(8, "little") + text + data[head + length : -32]
    journal.write_bytes(made + hashlib.sha256(made).digest())
    for line in (undo(one), undo(one, "--list")):
        assert "is not about m, so nothing is restored" in line[1]


def test_a_seal_of_a_folder_leaves_journals_out(one, tmp_path):
    """They are no part of the checkpoint, and go once the change is undone."""
    assert fix(one, *SHORTER)[0] == 0
    assert told("seal", "m", cwd=tmp_path)[0] == 0
    assert "ckptdoctor-undo" not in (one / "ckptdoctor.seal.json").read_text()
    assert told("verify", "m", cwd=tmp_path)[0] == 0
    shutil.move(next(one.glob(".*undo*")), tmp_path)
    assert told("verify", "m", cwd=tmp_path)[0] == 0
