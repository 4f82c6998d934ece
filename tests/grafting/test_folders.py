"""A folder of shards is healed file by file, and what nothing proves is left as it was."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import ckptdoctor
from ckptdoctor.errors import RefusedError, UsageError, WriteError
from tests.commands import run_here

NAMES = [f"model-{number}-of-00003.safetensors" for number in ("00001", "00002", "00003")]


def saved(folder, seed=0):
    """Three shards of two tensors each with their index, and a config."""
    torch.manual_seed(seed)
    folder.mkdir()
    table = {}
    for at, name in enumerate(NAMES):
        shard = {f"layer{at}.weight": torch.rand(40, 30), f"layer{at}.bias": torch.rand(40)}
        save_file(shard, folder / name)
        table |= dict.fromkeys(shard, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": table}))
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def good(tmp_path):
    """The other copy."""
    return saved(tmp_path / "good")


@pytest.fixture
def bad(good, tmp_path):
    """The folder that gets damaged."""
    return shutil.copytree(good, tmp_path / "bad")


def flip(path, at=-20):
    """Another bit."""
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def with_nan(path, key):
    """The same file with NaN in a tensor."""
    tensors = load_file(path)
    tensors[key].view(-1)[3] = float("nan")
    save_file(tensors, path)


def contents(folder):
    """Every file by its name."""
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def states(report):
    """What became of each file."""
    return [each.state for each in report.shards]


HEALED, REPLACED, INTACT, STAYS = "healed", "replaced", "intact", "stays"


def test_sealed_shards_come_back_whatever_happened_to_them(good, bad):
    """A changed bit, a cut end, a file that is gone: the new folder is the one that was sealed."""
    ckptdoctor.seal(bad)
    was = contents(bad)
    flip(bad / NAMES[0])
    (bad / NAMES[1]).write_bytes((bad / NAMES[1]).read_bytes()[:50])
    (bad / NAMES[2]).unlink()
    damaged = contents(bad)
    report = ckptdoctor.graft(bad, good)
    assert states(report) == [HEALED, REPLACED, REPLACED] and report.written
    assert {each.ground for each in report.changed[1:]} == {"published"} and report.shards[0].graft.published
    assert contents(bad.with_name("bad.grafted")) == was and contents(bad) == damaged
    assert ckptdoctor.verify(bad.with_name("bad.grafted")).as_sealed


def test_checksums_prove_tensors_of_shards(tmp_path):
    """Of archives of torch: two bits, which need the other copy; nothing else vouches."""
    good = tmp_path / "good"
    good.mkdir()
    for number in (1, 2):
        torch.save({f"w{number}": torch.rand(50, 50)}, good / f"pytorch_model-0000{number}-of-00002.bin")
    bad = shutil.copytree(good, tmp_path / "bad")
    path = bad / "pytorch_model-00001-of-00002.bin"
    at = path.read_bytes().index(torch.load(path)["w1"].numpy().tobytes())
    flip(path, at)
    flip(path, at + 77)
    report = ckptdoctor.graft(bad, good)
    assert states(report) == [HEALED, INTACT]
    assert contents(tmp_path / "bad.grafted") == contents(good)


def test_a_shard_is_vouched_for_by_the_others(good, bad):
    """Nothing but one tensor is left to compare in it, and it is the damaged one; other folders agree in all others."""
    with_nan(bad / NAMES[1], "layer1.weight")
    report = ckptdoctor.graft(bad, good)
    assert states(report) == [INTACT, HEALED, INTACT] and report.likeness.equal == 5
    assert {each.ground for each in report.shards[1].graft.grafted} == {"copies"}
    assert contents(bad.with_name("bad.grafted")) == contents(good)


def test_a_folder_of_another_step_is_refused(good, bad):
    """One tensor of another shard differs: nothing is written."""
    with_nan(bad / NAMES[1], "layer1.weight")
    tensors = load_file(good / NAMES[2])
    tensors["layer2.bias"] += 1
    save_file(tensors, good / NAMES[2])
    with pytest.raises(RefusedError, match="nothing can be healed"):
        ckptdoctor.graft(bad, good)
    assert not bad.with_name("bad.grafted").exists()


def test_a_missing_shard_is_taken_where_the_index_and_all_others_agree(good, bad):
    """Without a seal; a file with other tensors, or a damaged one, is not."""
    (bad / NAMES[2]).unlink()
    report = ckptdoctor.graft(bad, good)
    assert states(report) == [INTACT, INTACT, REPLACED] and report.shards[2].ground == "copies"
    assert contents(bad.with_name("bad.grafted")) == contents(good)
    shutil.rmtree(bad.with_name("bad.grafted"))
    tensors = load_file(good / NAMES[2])
    save_file({**tensors, "more": torch.zeros(3)}, good / NAMES[2])
    with pytest.raises(RefusedError, match="are not those that the index names"):
        ckptdoctor.graft(bad, good)
    save_file(tensors, good / NAMES[2])
    with_nan(good / NAMES[2], "layer2.bias")
    with pytest.raises(RefusedError, match="is damaged as well"):
        ckptdoctor.graft(bad, good)
    (bad / "model.safetensors.index.json").unlink()
    with pytest.raises(RefusedError, match="no seal and no index shows what was in it"):
        ckptdoctor.graft(bad, good)


def test_a_file_that_is_not_the_sealed_one_is_not_taken(good, bad):
    """Although all other shards agree."""
    ckptdoctor.seal(bad)
    (bad / NAMES[2]).unlink()
    with_nan(bad / NAMES[1], "layer1.weight")
    for name, key in ((NAMES[2], "layer2.bias"), (NAMES[1], "layer1.weight")):
        tensors = load_file(good / name)
        tensors[key] += 1
        save_file(tensors, good / name)
    with pytest.raises(RefusedError, match=r"does not have the SHA-256 of the seal"):
        ckptdoctor.graft(bad, good)


def test_each_file_is_healed_completely_or_not_at_all(good, bad):
    """One of two tensors has no counterpart: that file stays as it is, and others are healed."""
    with_nan(bad / NAMES[0], "layer0.weight")
    with_nan(bad / NAMES[1], "layer1.weight")
    with_nan(bad / NAMES[1], "layer1.bias")
    tensors = load_file(good / NAMES[1])
    del tensors["layer1.bias"]
    save_file(tensors, good / NAMES[1])
    report = ckptdoctor.graft(bad, good)
    assert states(report) == [HEALED, STAYS, INTACT] and "layer1.bias" in report.shards[1].why
    made = contents(bad.with_name("bad.grafted"))
    assert made[NAMES[0]] == (good / NAMES[0]).read_bytes() and made[NAMES[1]] == (bad / NAMES[1]).read_bytes()
    assert run_here("graft", "bad", "--from", "good", "-o", "x", cwd=bad.parent).returncode == 1


def test_in_the_folder_itself_only_damaged_files_are_replaced(good, bad):
    """With --force, and no other file is touched."""
    with_nan(bad / NAMES[0], "layer0.weight")
    before = (bad / NAMES[1]).stat()
    with pytest.raises(WriteError, match="is the original itself"):
        ckptdoctor.graft(bad, good, bad)
    report = ckptdoctor.graft(bad, good, bad, force=True)
    assert report.replaces_original and contents(bad) == contents(good)
    after = (bad / NAMES[1]).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_an_intact_folder_is_left_alone(good, bad):
    """Nothing is written, and the status is 0."""
    done = run_here("graft", "bad", "--from", "good", cwd=bad.parent)
    assert done.returncode == 0 and b"nothing to do" in done.stdout and not bad.with_name("bad.grafted").exists()


def test_the_plan_is_shown_before_anything_is_written(good, bad):
    """Names of files and tensors, and why; the same as JSON."""
    ckptdoctor.seal(bad)
    flip(bad / NAMES[0])
    (bad / NAMES[2]).unlink()
    (bad / "sub").mkdir()
    planned = run_here("graft", "bad", "--from", "good", "--diff", cwd=bad.parent)
    assert planned.returncode == 0, planned
    for told in (
        b"bad \xc2\xb7 3 files with tensors \xc2\xb7 1 not known to be damaged, 1 healed, 1 replaced as a whole",
        b"healed    model-00001-of-00003.safetensors   1 tensor: layer0.weight",
        b"replaced  model-00003-of-00003.safetensors   it is missing",
        b"not copied: sub/",
        b"would write bad.grafted; nothing was written",
    ):
        assert told in planned.stdout, planned.stdout.decode()
    assert not bad.with_name("bad.grafted").exists()
    done = run_here("graft", "bad", "--from", "good", "--format", "json", cwd=bad.parent)
    found = json.loads(done.stdout)
    assert found["status"] == "grafted" and [each["state"] for each in found["files"]] == [
        "healed",
        "intact",
        "replaced",
    ]
    assert found["files"][0]["grafted"][0]["key"] == "layer0.weight" and "seal" in found["files"][2]["stated_by"]


def test_what_is_not_about_folders_is_refused(good, bad, tmp_path):
    """A file as the other copy, none, tensors by name, a folder without files of tensors."""
    with pytest.raises(UsageError, match="has to be a folder on this machine"):
        ckptdoctor.graft(bad, good / NAMES[0])
    with pytest.raises(UsageError, match="is a folder: name the other copy"):
        ckptdoctor.graft(bad)
    with pytest.raises(UsageError, match="are about one file"):
        ckptdoctor.graft(bad, good, key="layer0.weight")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="has no PyTorch or safetensors files"):
        ckptdoctor.graft(tmp_path / "empty", good)


@pytest.mark.parametrize(("length", "why"), [(0, "it is empty"), (2000, "it is cut off")])
def test_what_was_wrong_with_a_replaced_file_is_one_clause(good, bad, tmp_path, length, why):
    """The reason names the damage, not what else could be done about such a file."""
    path = bad / NAMES[1]
    path.write_bytes(path.read_bytes()[:length])
    done = run_here("graft", "bad", "--from", "good", cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    (line,) = [line for line in done.stdout.decode().splitlines() if line.startswith("  replaced")]
    assert line.split(None, 2)[2] == why
