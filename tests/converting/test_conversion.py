from __future__ import annotations

import argparse
import gzip
import json
import os
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file, save_model

import ckptdoctor
from ckptdoctor.errors import CkptDoctorError, DamagedError, RefusedError, UsageError, WriteError
from ckptdoctor.findings import ConvertReport
from tests.writing.helpers import leftovers


def convert(source: object, output: Path, **options: object) -> ConvertReport:
    paths = list(map(str, source)) if isinstance(source, list) else str(source)
    return ckptdoctor.convert(paths, str(output), **options)


def weights() -> OrderedDict:
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).state_dict()


def saved(folder: Path, contents: object, name: str = "model.pt", **options: object) -> Path:
    torch.save(contents, folder / name, **options)
    return folder / name


def run() -> dict[str, object]:
    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
    return {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}


def same(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


# ---- to safetensors


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_a_state_dict_becomes_what_save_file_writes(tmp_path: Path, legacy: bool):
    """Byte for byte; what is not in it is said."""
    state = weights()
    source = saved(tmp_path, state, _use_new_zipfile_serialization=not legacy)
    save_file(dict(state), tmp_path / "wanted.safetensors", {"format": "pt"})
    report = convert(source, tmp_path / "got.safetensors")
    assert (tmp_path / "got.safetensors").read_bytes() == (tmp_path / "wanted.safetensors").read_bytes()
    assert (report.tensors, report.identical, report.remade) == (7, 7, 0)
    assert report.left_out == ("_metadata (the versions of modules)",)
    assert leftovers(tmp_path) == []


def test_what_are_no_tensors_is_kept_beside(tmp_path: Path):
    """Plain values exactly; objects by what the file says of them, and that is said."""
    contents = {"state_dict": weights(), "epoch": 3, "lr": float("inf"), "args": argparse.Namespace(lr=0.1), "e": {}}
    report = convert(saved(tmp_path, contents), tmp_path / "got.safetensors")
    assert same(load_file(tmp_path / "got.safetensors"), dict(contents["state_dict"]))
    assert report.sidecar == str(tmp_path / "got.extra.json")
    assert json.loads((tmp_path / "got.extra.json").read_text())["contents"] == {
        "epoch": 3,
        "lr": {"$float": "inf"},
        "args": {"$object": "argparse.Namespace", "state": {"lr": 0.1}},
        "e": {},
    }
    assert report.described == ("args (argparse.Namespace)",)


def test_two_sets_of_tensors_take_a_choice(tmp_path: Path):
    """Refused with both ways; --root says what was left out, --flatten takes everything."""
    contents = run()
    source = saved(tmp_path, contents)
    with pytest.raises(RefusedError, match=r'choose: root="state_dict", or flatten=True'):
        convert(source, tmp_path / "got.safetensors")
    assert os.listdir(tmp_path) == ["model.pt"]
    report = convert(source, tmp_path / "root.safetensors", root="state_dict")
    assert same(load_file(tmp_path / "root.safetensors"), dict(contents["state_dict"]))
    assert report.left_out[:2] == ("optimizer (6 tensors)", "epoch")
    convert(source, tmp_path / "flat.safetensors", flatten=True)
    flat = load_file(tmp_path / "flat.safetensors")
    assert torch.equal(flat["optimizer/state/0/exp_avg"], contents["optimizer"]["state"][0]["exp_avg"])
    kept = json.loads((tmp_path / "flat.extra.json").read_text())["contents"]
    assert kept["optimizer"]["param_groups"][0]["betas"] == {"$tuple": [0.9, 0.999]}
    assert "state" not in kept["optimizer"]


@pytest.mark.parametrize("contents", [{}, {"epoch": 3, "names": ["a"]}], ids=["nothing", "no tensor"])
@pytest.mark.parametrize("target", ["got.safetensors", "folder/"])
@pytest.mark.parametrize("flatten", [False, True])
def test_a_checkpoint_without_tensors_is_refused(tmp_path: Path, contents: dict, target: str, flatten: bool):
    """A file of weights without weights helps nobody: one sentence, and nothing is written."""
    source = saved(tmp_path, contents)
    with pytest.raises(RefusedError, match="has no tensors to convert"):
        convert(source, os.path.join(tmp_path, target), flatten=flatten)
    assert os.listdir(tmp_path) == ["model.pt"]


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(4, 3)
        self.a_head = torch.nn.Linear(3, 4, bias=False)
        self.a_head.weight = self.embed_tokens.weight


def test_tied_tensors_have_one_owner_and_tie_again(tmp_path: Path):
    """save_model's metadata, but the input embedding owns; load_model and the way back know it."""
    model = Tied()
    report = convert(saved(tmp_path, model.state_dict()), tmp_path / "got.safetensors")
    assert report.tied == (("a_head.weight", "embed_tokens.weight"),)
    with safe_open(tmp_path / "got.safetensors", "pt") as file:
        assert list(file.keys()) == ["embed_tokens.weight"]
        assert file.metadata() == {"format": "pt", "a_head.weight": "embed_tokens.weight"}
    other = Tied()
    load_model(other, tmp_path / "got.safetensors")
    assert torch.equal(other.a_head.weight, model.a_head.weight)
    back = convert(tmp_path / "got.safetensors", tmp_path / "back.pt")
    loaded = torch.load(tmp_path / "back.pt")
    assert loaded["a_head.weight"].data_ptr() == loaded["embed_tokens.weight"].data_ptr()
    assert back.restored == report.tied
    save_model(model, str(tmp_path / "theirs.safetensors"))
    convert(tmp_path / "theirs.safetensors", tmp_path / "theirs.pt")
    assert same(torch.load(tmp_path / "theirs.pt"), dict(model.state_dict()))


def test_tied_tensors_can_be_written_each(tmp_path: Path):
    """With clone_ties both names have the bytes; views of one buffer always do."""
    buffer = torch.arange(12.0)
    source = saved(tmp_path, {"a": buffer, "b": buffer, "c": buffer[3:6], "t": buffer.reshape(3, 4).t()})
    report = convert(source, tmp_path / "got.safetensors", clone_ties=True)
    assert same(load_file(tmp_path / "got.safetensors"), torch.load(source))
    assert (report.doubled, report.identical, report.remade) == (4, 3, 1)


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.zeros(2, dtype=torch.complex128), "complex128, which safetensors does not have"),
        (torch.eye(2).to_sparse(), "sparse_coo: densify"),
        (torch.ones(2, device="meta"), "meta device"),
        (torch.ones(2, dtype=torch.complex64).conj(), "resolve_conj"),
    ],
    ids=["complex", "sparse", "meta", "conj"],
)
def test_what_safetensors_cannot_say_is_refused_by_name(tmp_path: Path, tensor: torch.Tensor, reason: str):
    """With all of it listed, and nothing written."""
    source = saved(tmp_path, {"fine": torch.ones(1), "odd.weight": tensor})
    with pytest.raises(RefusedError) as refused:
        convert(source, tmp_path / "got.safetensors")
    assert "odd.weight is " in refused.value.message or "odd.weight has " in refused.value.message
    assert reason in refused.value.message
    assert os.listdir(tmp_path) == ["model.pt"]


def test_a_damaged_storage_is_not_converted_silently(tmp_path: Path):
    """safetensors has no checksums: one that does not match would be lost."""
    source = saved(tmp_path, {"w": torch.arange(1000.0)})
    data = bytearray(source.read_bytes())
    with zipfile.ZipFile(source) as archive:
        at = data.index(torch.arange(1000.0).numpy().tobytes())
        assert archive.testzip() is None
    data[at + 100] ^= 1
    source.write_bytes(data)
    with pytest.raises(DamagedError, match="checksum"):
        convert(source, tmp_path / "got.safetensors")
    assert os.listdir(tmp_path) == ["model.pt"]


def test_deflated_archives_are_read(tmp_path: Path):
    """Values that torch itself would map to garbage come out whole, in C order too."""
    wanted = {"w": torch.arange(5000.0), "t": torch.arange(6.0).reshape(2, 3).t()}
    source = saved(tmp_path, wanted)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(tmp_path / "packed.pt", "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info), zipfile.ZIP_DEFLATED)
    convert(tmp_path / "packed.pt", tmp_path / "got.safetensors")
    assert same(load_file(tmp_path / "got.safetensors"), wanted)


# ---- to shards, and together again


def test_shards_and_their_index_load_and_merge(tmp_path: Path):
    """Each tensor is in one shard, the index says in which, and merging gives the same again."""
    wanted = {f"layer.{at}.weight": torch.randn(50) for at in range(9)}
    report = convert(saved(tmp_path, wanted), tmp_path / "shards", shard_size="500B")
    index = json.loads((tmp_path / "shards" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 9 * 200
    assert len(report.files) == 6
    loaded = {}
    for name in sorted(set(index["weight_map"].values())):
        found = load_file(tmp_path / "shards" / name)
        assert {index["weight_map"][key] for key in found} == {name}
        loaded.update(found)
    assert same(loaded, dict(sorted(wanted.items())))
    shards = sorted((tmp_path / "shards").glob("*.safetensors"))
    convert(shards, tmp_path / "merged.pt")
    assert same(torch.load(tmp_path / "merged.pt"), loaded)
    convert(tmp_path / "shards", tmp_path / "merged.safetensors")
    assert same(load_file(tmp_path / "merged.safetensors"), loaded)
    assert leftovers(tmp_path) == []


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path):
    """Unless it is empty, or --force; never together with other weights."""
    source = saved(tmp_path, {f"w.{at}": torch.ones(10) for at in range(4)})
    folder = tmp_path / "out"
    folder.mkdir()
    convert(source, folder, shard_size="50B")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(WriteError, match="not empty"):
        convert(source, folder, shard_size="50B")
    (folder / "config.json").write_text("{}")
    convert(source, folder, shard_size="50B", force=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {**before, "config.json": b"{}"}
    with pytest.raises(WriteError, match="other weights"):
        convert(source, folder, shard_size="1GB", force=True)
    assert {path.name for path in folder.iterdir()} == {*before, "config.json"}
    assert leftovers(tmp_path) == []


def test_a_key_in_two_files_must_have_one_value(tmp_path: Path):
    """Equal bytes are written once, others refused with the key."""
    one = saved(tmp_path, {"a": torch.ones(3), "epoch": 3}, "one.pt")
    two = saved(tmp_path, {"a": torch.ones(3), "b": torch.zeros(2), "epoch": 3}, "two.pt")
    convert([one, two], tmp_path / "both.pt")
    assert convert([one, two], tmp_path / "both.safetensors").doubled == 0
    assert list(torch.load(tmp_path / "both.pt")) == ["a", "epoch", "b"]
    for changed in ({"a": torch.ones(3) + 1e-7}, {"epoch": 4}, {"a": torch.ones(3, dtype=torch.float64)}):
        saved(tmp_path, changed, "two.pt")
        with pytest.raises(RefusedError, match=f'"{next(iter(changed))}" is in .*one.pt and in .*two.pt'):
            convert([one, two], tmp_path / "neither.pt")


# ---- to torch


def test_safetensors_become_an_archive_that_loads_each_way(tmp_path: Path):
    """With other metadata beside it."""
    wanted = {
        "w": torch.randn(3, 4),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "f8": torch.ones(2).to(torch.float8_e5m2),
    }
    save_file(wanted, tmp_path / "model.safetensors", {"format": "pt", "step": "4"})
    report = convert(tmp_path / "model.safetensors", tmp_path / "got.pt")
    for options in ({}, {"mmap": True}):
        loaded = torch.load(tmp_path / "got.pt", **options)
        assert all(torch.equal(loaded[key].view(torch.uint8), value.view(torch.uint8)) for key, value in wanted.items())
    assert torch.load(tmp_path / "got.pt", map_location="meta")["w"].shape == (3, 4)
    assert json.loads(Path(report.sidecar).read_text())["metadata"] == {"step": "4"}
    with zipfile.ZipFile(tmp_path / "got.pt") as archive:
        assert archive.testzip() is None


@pytest.mark.parametrize("suffix", [".pt", ".bin"])
def test_what_torch_wrote_keeps_everything(tmp_path: Path, suffix: str):
    """Legacy files and archives go the lossless way, with objects, ties and tags."""
    contents = {**run(), "args": argparse.Namespace(lr=0.1)}
    for number, options in enumerate(({}, {"_use_new_zipfile_serialization": False})):
        source = saved(tmp_path, contents, f"model{number}.pth", **options)
        convert(source, tmp_path / f"got{number}{suffix}")
        loaded = torch.load(tmp_path / f"got{number}{suffix}", weights_only=False)
        assert loaded["args"] == contents["args"]
        assert same(loaded["state_dict"], contents["state_dict"])
        convert(source, tmp_path / f"part{number}{suffix}", root="state_dict")
        assert same(torch.load(tmp_path / f"part{number}{suffix}"), contents["state_dict"])


def test_numpy_archives_become_either(tmp_path: Path):
    """Fortran order and all."""
    arrays = {"w": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "b": np.arange(3)}
    np.savez(tmp_path / "model.npz", **arrays)
    convert(tmp_path / "model.npz", tmp_path / "got.safetensors")
    convert(tmp_path / "model.npz", tmp_path / "got.pt")
    for loaded in (load_file(tmp_path / "got.safetensors"), torch.load(tmp_path / "got.pt")):
        assert all(np.array_equal(loaded[name].numpy(), array) for name, array in arrays.items())


def test_wrapped_files_are_unwrapped(tmp_path: Path):
    """A gzipped checkpoint is converted as what is in it."""
    source = saved(tmp_path, {"w": torch.arange(9.0)})
    (tmp_path / "model.pt.gz").write_bytes(gzip.compress(source.read_bytes()))
    convert(tmp_path / "model.pt.gz", tmp_path / "got.safetensors")
    convert(tmp_path / "model.pt.gz", tmp_path / "got.pt")
    for loaded in (load_file(tmp_path / "got.safetensors"), torch.load(tmp_path / "got.pt")):
        assert torch.equal(loaded["w"], torch.arange(9.0))


def test_distributed_checkpoints_are_put_together(tmp_path: Path):
    """Weights and plain values, as dcp_to_torch_save has them."""
    import torch.distributed.checkpoint as dcp

    wanted = {"model": {"w": torch.randn(4, 5), "b": torch.arange(3)}, "epoch": 3}
    with pytest.warns(UserWarning, match="single process"):
        dcp.save(wanted, checkpoint_id=tmp_path / "dcp", no_dist=True)
    convert(tmp_path / "dcp", tmp_path / "got.pt")
    loaded = torch.load(tmp_path / "got.pt", weights_only=False)
    assert loaded["epoch"] == 3
    assert same(loaded["model"], wanted["model"])
    convert(tmp_path / "dcp", tmp_path / "got.safetensors", root="model")
    assert same(load_file(tmp_path / "got.safetensors"), dict(sorted(wanted["model"].items())))


# ---- requests


def test_nothing_is_overwritten_without_force(tmp_path: Path):
    """Neither the output nor the file beside it; and then both, in one go."""
    source = saved(tmp_path, {"w": torch.ones(2), "epoch": 3})
    (tmp_path / "got.extra.json").write_text("mine")
    with pytest.raises(WriteError, match="already exists"):
        convert(source, tmp_path / "got.safetensors")
    assert sorted(os.listdir(tmp_path)) == ["got.extra.json", "model.pt"]
    assert (tmp_path / "got.extra.json").read_text() == "mine"
    convert(source, tmp_path / "got.safetensors", force=True)
    assert json.loads((tmp_path / "got.extra.json").read_text())["contents"] == {"epoch": 3}


@pytest.mark.parametrize("output", ["model.onnx", "model"])
def test_outputs_that_say_nothing_are_usage_errors(tmp_path: Path, output: str):
    """With the suffixes that do."""
    with pytest.raises(UsageError, match="safetensors"):
        convert(saved(tmp_path, {"w": torch.ones(2)}), tmp_path / output)


def test_a_file_cannot_hold_shards(tmp_path: Path):
    """--shard-size wants a folder."""
    with pytest.raises(UsageError, match="folder"):
        convert(saved(tmp_path, {"w": torch.ones(2)}), tmp_path / "x.safetensors", shard_size="5GB")


@pytest.mark.parametrize("contents", [{}, {"epoch": 3}, [1, 2], 3], ids=str)
def test_nothing_to_convert_is_said(tmp_path: Path, contents: object):
    """A checkpoint without tensors is refused, whatever it is."""
    with pytest.raises(RefusedError, match="no tensors"):
        convert(saved(tmp_path, contents), tmp_path / "got.safetensors")


def test_cut_files_are_refused_or_right(tmp_path: Path):
    """Whereever a file ends: what is converted is what was there, and everything else is one sentence."""
    wanted = {f"w{at}": torch.arange(20.0) + at for at in range(3)}
    for name, save in (("a.pt", torch.save), ("a.safetensors", save_file)):
        save(wanted, tmp_path / name)
        data = (tmp_path / name).read_bytes()
        for end in range(0, len(data), max(1, len(data) // 40)):
            (tmp_path / f"cut{name}").write_bytes(data[:end])
            try:
                convert(tmp_path / f"cut{name}", tmp_path / "got.safetensors", force=True)
            except CkptDoctorError as error:
                assert error.message
            else:
                assert same(load_file(tmp_path / "got.safetensors"), wanted)
