"""What is whole of a folder of shards is saved, and nothing else."""

from __future__ import annotations

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

import ckptdoctor
from ckptdoctor.errors import NotACheckpointError, RefusedError, UsageError, WriteError
from ckptdoctor.examine.file import check
from ckptdoctor.salvaging import salvage as salvage_folder
from ckptdoctor.salvaging.salvage import salvage
from tests import broken_shards
from tests.commands import run_here

INDEX = "model.safetensors.index.json"
NAMES = [f"model-{number:05d}-of-00003.safetensors" for number in (1, 2, 3)]


def tensors():
    torch.manual_seed(1)
    return {f"layers.{number}.weight": torch.randn(16, 4) for number in range(9)}


def shards(path, index=True, extra=None):
    """Nine tensors in three files."""
    path.mkdir()
    every = tensors()
    groups = [dict(list(every.items())[at : at + 3]) for at in (0, 3, 6)]
    for name, group in zip(NAMES, groups, strict=True):
        save_file({**group, **((extra or {}).get(name, {}))}, path / name, {"format": "pt"})
    if index:
        where = {key: name for name, group in zip(NAMES, groups, strict=True) for key in group}
        (path / INDEX).write_text(json.dumps({"metadata": {"total_size": 2304}, "weight_map": where}))
    return path


def cut(path, left):
    os.truncate(path, os.path.getsize(path) - left)


def assert_true(folder, keys):
    """The folder holds these keys with their values, and nothing is wrong with it."""
    every = tensors()
    loaded = ckptdoctor.load(folder)
    assert sorted(loaded) == sorted(keys)
    assert all(torch.equal(loaded[key], every[key]) for key in keys)
    assert check(str(folder)).findings == ()


def test_a_folder_that_is_whole(tmp_path):
    """Nothing is lost, and the shards are copied as they are."""
    source = shards(tmp_path / "m")
    report = salvage(str(source))
    assert (report.output, report.recovered, report.lost) == (str(tmp_path / "m.salvaged"), 9, ())
    assert_true(tmp_path / "m.salvaged", tensors())
    for name in NAMES:
        assert (tmp_path / "m.salvaged" / name).read_bytes() == (source / name).read_bytes()


def test_cut_missing_and_whole(tmp_path):
    """One shard of each kind: the table is over all of them, and the index names what there is."""
    source = shards(tmp_path / "m")
    cut(source / NAMES[0], 300)
    (source / NAMES[1]).unlink()
    before = {name: (source / name).read_bytes() for name in os.listdir(source)}
    report = salvage(str(source), str(tmp_path / "out"))
    kept = ["layers.0.weight", "layers.6.weight", "layers.7.weight", "layers.8.weight"]
    assert_true(tmp_path / "out", kept)
    assert (report.recovered, len(report.lost), len(report.partial)) == (4, 5, 1)
    said = {each.path: each.damage for each in report.lost if not each.dtype}
    assert set(said.values()) == {f"{NAMES[1]} is missing"}
    index = json.loads((tmp_path / "out" / INDEX).read_text())
    assert sorted(index["weight_map"]) == kept
    assert index["metadata"]["total_size"] == 4 * 256
    assert {name: (source / name).read_bytes() for name in os.listdir(source)} == before


@pytest.mark.parametrize("left", range(0, 1000, 37))
def test_every_cut(left, tmp_path):
    """Whatever is saved equals what there was."""
    source = shards(tmp_path / "m")
    cut(source / NAMES[1], left)
    try:
        report = salvage(str(source), str(tmp_path / "out"))
    except RefusedError:
        raise AssertionError("two shards are whole") from None
    every = tensors()
    loaded = ckptdoctor.load(tmp_path / "out")
    assert len(loaded) == report.recovered == 9 - len(report.lost)
    assert all(torch.equal(value, every[key]) for key, value in loaded.items())


def test_without_an_index(tmp_path):
    """An index is made, so that loaders do not look for what is lost."""
    source = shards(tmp_path / "m", index=False)
    (source / NAMES[2]).write_bytes(b"\x40")
    salvage(str(source), str(tmp_path / "out"))
    assert sorted(os.listdir(tmp_path / "out")) == [*NAMES[:2], INDEX]
    assert_true(tmp_path / "out", list(tensors())[:6])


def test_shards_of_torch(tmp_path):
    """Records that do not match their checksums are lost."""
    names = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    every = list(tensors().items())
    torch.save(dict(every[:4]), tmp_path / names[0])
    torch.save(dict(every[4:]), tmp_path / names[1])
    raw = bytearray((tmp_path / names[1]).read_bytes())
    at = bytes(raw).index(every[5][1].numpy().tobytes())
    raw[at] ^= 255
    (tmp_path / names[1]).write_bytes(raw)
    report = salvage(str(tmp_path), str(tmp_path / "out"))
    assert ([each.path for each in report.lost], report.verified) == ([(every[5][0],)], 8)
    assert (tmp_path / "out" / "pytorch_model.bin.index.json").exists()
    assert_true(tmp_path / "out", [key for key, _ in every if key != every[5][0]])


def test_a_tensor_in_two_shards(tmp_path):
    """The index says which is meant; what it says stays so."""
    source = shards(tmp_path / "m", extra={NAMES[2]: {"layers.0.weight": torch.zeros(2)}})
    salvage(str(source), str(tmp_path / "out"))
    assert json.loads((tmp_path / "out" / INDEX).read_text())["weight_map"]["layers.0.weight"] == NAMES[0]
    assert torch.equal(ckptdoctor.load(tmp_path / "out")["layers.0.weight"], tensors()["layers.0.weight"])


def test_one_file_of_a_model(tmp_path):
    """A folder with one file of weights needs no index."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    save_file(tensors(), tmp_path / "m" / "model.safetensors")
    cut(tmp_path / "m" / "model.safetensors", 300)
    report = salvage(str(tmp_path / "m"), str(tmp_path / "out"))
    assert report.recovered == 7
    assert os.listdir(tmp_path / "out") == ["model.safetensors"]
    assert len(load_file(tmp_path / "out" / "model.safetensors")) == 7


def test_loose_files_are_named_instead(tmp_path):
    """A folder that is no checkpoint is not salvaged: the message names a file to begin with."""
    torch.save(tensors(), tmp_path / "decoder.pt")
    with pytest.raises(NotACheckpointError) as error:
        salvage(str(tmp_path))
    assert error.value.message.endswith(f"Open it: ckptdoctor {tmp_path / 'decoder.pt'}")


def test_what_is_refused(tmp_path):
    """Other folders, nothing that is whole, an output that is the source or is taken; nothing is left behind."""
    with pytest.raises(NotACheckpointError, match="only folders of shards"):
        salvage(str(tmp_path))
    source = shards(tmp_path / "m")
    with pytest.raises(UsageError, match="never overwritten"):
        salvage(str(source), f"{source}/", force=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "note").write_text("")
    with pytest.raises(WriteError, match="not empty"):
        salvage(str(source), str(tmp_path / "out"))
    for name in NAMES:
        (source / name).write_bytes(b"")
    with pytest.raises(RefusedError, match="nothing can be recovered from its 3 files"):
        salvage(str(source))
    assert sorted(os.listdir(tmp_path)) == ["m", "out"]


def test_a_name_that_leads_elsewhere(tmp_path):
    """It is not followed."""
    source = shards(tmp_path / "m")
    save_file({"x": torch.ones(1)}, tmp_path / "x.safetensors")
    said = json.loads((source / INDEX).read_text())
    said["weight_map"]["x"] = "../x.safetensors"
    (source / INDEX).write_text(json.dumps(said))
    report = salvage(str(source))
    assert [(each.path, each.damage) for each in report.lost] == [
        (("x",), "../x.safetensors is in another folder"),
    ]


def test_an_index_that_does_not_fit_is_noticed(tmp_path, monkeypatch):
    """The folder is read as it will be before it gets its name."""
    source = shards(tmp_path / "m")

    def wrong(where, total, metadata):
        return json.dumps({"weight_map": dict.fromkeys(where, NAMES[0])}).encode()

    monkeypatch.setattr(salvage_folder, "index_text", wrong)
    with pytest.raises(WriteError, match="differs from the plan"):
        salvage(str(source))
    assert os.listdir(tmp_path) == ["m"]


def test_what_is_said(tmp_path):
    """As text and as JSON: what is lost, and why; the exit status tells."""
    source = shards(tmp_path / "m")
    (source / NAMES[1]).unlink()
    result = run_here("salvage", source, cwd=tmp_path)
    assert result.returncode == 1
    lines = result.stdout.decode().splitlines()
    assert lines[0].endswith("sharded Hugging Face checkpoint · 6 of 9 tensors recovered")
    assert lines[lines.index(f"    {NAMES[1]} is missing") + 1] == "      layers.3.weight"
    assert lines[-1].startswith("next · AutoModel.from_pretrained")
    result = run_here("salvage", source, "--force", "--format", "json", cwd=tmp_path)
    lost = json.loads(result.stdout)["lost"]
    assert lost[0] == {
        "key": "layers.3.weight",
        "dtype": None,
        "shape": None,
        "bytes": 0,
        "share": 0.0,
        "damage": f"{NAMES[1]} is missing",
    }


@pytest.mark.parametrize("damage", ["missing", "page", "pointer", "zeroed", "empty", "beheaded"])
def test_a_shard_of_which_nothing_is_left_is_never_passed_over(damage, tmp_path):
    """Without an index nothing says what it held: that is said, and the exit status tells, though no key is lost."""
    broken_shards.folder(tmp_path / "m", damage=damage, index=False)
    report = salvage(str(tmp_path / "m"))
    assert (report.recovered, report.lost, len(report.lost_files)) == (16, (), 1)
    assert report.lost_files[0].startswith(broken_shards.name(2))
    result = run_here("salvage", tmp_path / "m", "--force", cwd=tmp_path)
    assert result.returncode == 1
    assert " · 16 tensors recovered\n" in result.stdout.decode()
    assert f"    {report.lost_files[0]}; nothing shows which tensors it held\n" in result.stdout.decode()


def test_why_a_shard_is_lost_is_said_once(tmp_path):
    """Above its tensors, in words without the path; JSON has it for each tensor, and for the file."""
    broken_shards.folder(tmp_path / "m", damage="page")
    result = run_here("salvage", tmp_path / "m", cwd=tmp_path)
    reason = f'{broken_shards.name(2)}: a web page called "404 Not Found" is here instead of the file'
    lines = result.stdout.decode().splitlines()
    assert lines.count(f"    {reason}") == 1
    at = lines.index(f"    {reason}")
    assert [line.strip() for line in lines[at + 1 : at + 9]] == broken_shards.SECOND
    result = run_here("salvage", tmp_path / "m", "--force", "--format", "json", cwd=tmp_path)
    said = json.loads(result.stdout)
    assert said["lost_files"] == [reason]
    assert {each["damage"] for each in said["lost"]} == {reason}


def test_a_missing_file_whose_tensors_lie_in_others_is_no_loss(tmp_path):
    """An index of another save names files that are not there."""
    source = shards(tmp_path / "m", index=False)
    where = dict.fromkeys(tensors(), "model-00001-of-00001.safetensors")
    (source / INDEX).write_text(json.dumps({"weight_map": where}))
    report = salvage(str(source))
    assert (report.recovered, report.lost, report.lost_files) == (9, (), ())
