"""Folders of torch.distributed.checkpoint that are written here, and read by torch itself."""

from __future__ import annotations

import os
import pickle
import pickletools
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import ckptdoctor
from ckptdoctor.converting.conversion import convert
from ckptdoctor.converting.request import ConvertRequest
from ckptdoctor.errors import DamagedError, RefusedError, UsageError, WriteError
from ckptdoctor.formats.fresh import dcp as fresh_dcp
from ckptdoctor.formats.fresh.strided import segments
from tests.commands import run
from tests.formats.folders.same import assert_same
from tests.work import growth

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")


def contents():
    """Tensors of every kind that such a folder holds, beside nested plain values."""
    base = torch.arange(35.0).reshape(5, 7)
    return {
        "model": torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).state_dict(),
        "kinds": {
            "half": base.bfloat16(),
            "f8": base.to(torch.float8_e4m3fn),
            "turned": base.t(),
            "part": base[1:3],
            "column": base[:, 2],
            "scalar": torch.tensor(3),
            "empty": torch.empty(0, 4),
            "bool": base > 3,
            "complex": torch.ones(2, dtype=torch.complex64),
            "parameter": torch.nn.Parameter(base.clone()),
            "u16": torch.arange(4).to(torch.uint16),
        },
        "list": [torch.ones(2), {"x": 1}, torch.zeros(1), 5],
        "plain": [1, [2.5, "three"], None],
        "pair": (1, torch.ones(3)),
        "epoch": 4,
        "name": "rün",
        "none": None,
    }


def converted(source, folder, **options):
    """The report on the conversion of what is saved at ``source``."""
    return convert(ConvertRequest((str(source),), str(folder), to="dcp", **options))


def as_torch_says(folder, file):
    """What torch makes of a distributed checkpoint in one process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp_to_torch_save(folder, file)
    return torch.load(file, weights_only=False)


def plain(value):
    """The same with plain dicts, as they come out of such a folder."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def test_torch_reads_it(tmp_path):
    """Everything is what was saved, value for value, for torch and for this package."""
    saved = contents()
    torch.save(saved, tmp_path / "model.pt")
    report = converted(tmp_path / "model.pt", tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out")) == [".metadata", "__0_0.distcp"]
    assert_same(as_torch_says(tmp_path / "out", tmp_path / "t.pt"), plain(saved))
    assert_same(ckptdoctor.load(tmp_path / "out"), plain(saved))
    assert (report.tensors, report.identical + report.remade, report.remade) == (21, 21, 2)
    assert report.left_out == ("attributes of dicts (_metadata, the versions of modules)",)
    assert report.files[0][0] == "__0_0.distcp"


def test_there_and_back(tmp_path):
    """A file, a folder, a file: the same tensors."""
    torch.save(contents(), tmp_path / "model.pt")
    converted(tmp_path / "model.pt", tmp_path / "out")
    convert(ConvertRequest((str(tmp_path / "out"),), str(tmp_path / "back.pt")))
    assert_same(torch.load(tmp_path / "back.pt"), plain(torch.load(tmp_path / "model.pt")))
    converted(tmp_path / "back.pt", tmp_path / "again")
    for name in ("__0_0.distcp", ".metadata"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_a_model_loads_from_it(tmp_path):
    """``dcp.load`` without a process group fills the state dict of a model, and of its optimizer."""
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    def training():
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        return model, optimizer

    model, optimizer = training()
    state = dict(zip(("model", "optim"), get_state_dict(model, optimizer), strict=True))
    torch.save(state, tmp_path / "model.pt")
    converted(tmp_path / "model.pt", tmp_path / "out")
    other, its = training()
    target = dict(zip(("model", "optim"), get_state_dict(other, its), strict=True))
    dcp.load(target, checkpoint_id=tmp_path / "out", no_dist=True)
    set_state_dict(other, its, model_state_dict=target["model"], optim_state_dict=target["optim"])
    assert_same(plain(other.state_dict()), plain(model.state_dict()))
    assert_same(its.state_dict()["state"], optimizer.state_dict()["state"])


def test_from_safetensors(tmp_path):
    """Tied names of the metadata are restored, and its other texts are kept beside."""
    metadata = {"format": "pt", "head": "emb", "by": "me"}
    save_file({"emb": torch.ones(2, 2), "b": torch.zeros(3)}, tmp_path / "model.safetensors", metadata)
    report = converted(tmp_path / "model.safetensors", tmp_path / "out")
    found = as_torch_says(tmp_path / "out", tmp_path / "t.pt")
    assert_same(found["head"], torch.ones(2, 2))
    assert report.sidecar == str(tmp_path / "out" / "model.extra.json")


def test_the_records_are_those_of_torch(tmp_path):
    """Whatever torch writes into .metadata for the same contents, but for who wrote it and where, is there."""
    torch.save(plain(contents()), tmp_path / "model.pt")
    converted(tmp_path / "model.pt", tmp_path / "out")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(torch.load(tmp_path / "model.pt"), checkpoint_id=tmp_path / "torch", no_dist=True)
    mine, its = (pickle.loads((tmp_path / each / ".metadata").read_bytes()) for each in ("out", "torch"))
    for entry in its.state_dict_metadata.values():
        if hasattr(entry, "properties"):
            entry.properties.requires_grad = False
    assert mine.state_dict_metadata == its.state_dict_metadata
    assert mine.planner_data == its.planner_data
    assert mine.storage_data.keys() == its.storage_data.keys()
    assert mine.version == its.version
    assert [each.index for each in mine.storage_data] == [
        next(other.index for other in its.storage_data if other == each) for each in mine.storage_data
    ]


def test_the_metadata_is_a_plain_pickle(tmp_path):
    """It names nothing but the records of torch."""
    torch.save(contents(), tmp_path / "model.pt")
    converted(tmp_path / "model.pt", tmp_path / "out")
    ops = pickletools.genops((tmp_path / "out" / ".metadata").read_bytes())
    named = {argument.split(" ")[0] for code, argument, _ in ops if code.name == "GLOBAL"}
    assert named == {
        "torch",
        "torch.serialization",
        "torch.distributed.checkpoint.metadata",
        "torch.distributed.checkpoint.filesystem",
    }


def test_what_has_no_place(tmp_path):
    """Keys become text, as torch has it, which is said; empty dicts, which torch loses, stay."""
    saved = {"a": torch.ones(2), "empty": {}, "list": [{}, torch.ones(1), {}], "by": {0: 1, 1: 2}}
    torch.save(saved, tmp_path / "model.pt")
    report = converted(tmp_path / "model.pt", tmp_path / "out")
    assert report.left_out == ("the types of non-string keys: by/0, by/1",)
    saved["by"] = {"0": 1, "1": 2}
    assert_same(as_torch_says(tmp_path / "out", tmp_path / "t.pt"), saved)
    assert_same(ckptdoctor.load(tmp_path / "out"), saved)


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        ({"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)}, 'Two values would be called "a.b"'),
        ([torch.ones(1)], "is not a dict"),
        ({}, "has nothing that|no values"),
        ({"a": torch.ones(2, 2).to_sparse()}, "densify"),
    ],
)
def test_refused(saved, said, tmp_path):
    """Nothing is written of what such a folder cannot hold."""
    torch.save(saved, tmp_path / "model.pt")
    with pytest.raises(RefusedError, match=said):
        converted(tmp_path / "model.pt", tmp_path / "out")
    assert os.listdir(tmp_path) == ["model.pt"]


# ---- values that do not match their checksum


SHARDED = Path(__file__).parents[2] / "sample_ckpts" / "trained" / "fsdp" / "dcp"


def flipped(source, folder, pick):
    """A copy with one bit of a tensor changed, of the first that ``pick`` takes, and its key."""
    shutil.copytree(source, folder / "flipped")
    tensor = next(each for each in ckptdoctor.open(folder / "flipped").tensors if pick(each))
    piece = tensor.chunks[-1][1] if tensor.chunks else tensor
    with open(piece.storage.extent.file, "r+b") as file:
        file.seek(piece.storage.extent.offset + 1)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    return folder / "flipped", tensor.key


@pytest.mark.parametrize(
    "line", [("convert", "{}", "out.pt"), ("convert", "{}", "out", "--to", "dcp"), ("merge", "{}", "-o", "out.pt")]
)
def test_damage_gets_no_new_checksum(line, tmp_path):
    """A tensor put together from pieces has a new checksum: pieces that do not match theirs are refused."""
    folder, _ = flipped(SHARDED, tmp_path, lambda each: each.chunks)
    before = set(os.listdir(tmp_path))
    came = run(*[each.format(folder) for each in line], cwd=tmp_path)
    assert came.returncode == 1
    assert b"do not match their checksum" in came.stdout + came.stderr
    assert set(os.listdir(tmp_path)) == before


def test_damage_that_is_left_out(tmp_path):
    """Without the damaged tensor the rest is written."""
    folder, key = flipped(SHARDED, tmp_path, lambda each: each.chunks)
    came = run("fix", folder, "--drop", key, "-o", "out.pt", cwd=tmp_path)
    assert came.returncode == 0, came.stdout
    there = {each.key for each in ckptdoctor.open(SHARDED).tensors}
    assert {each.key for each in ckptdoctor.open(tmp_path / "out.pt").tensors} == there - {key}


def test_damage_that_stays_visible(tmp_path):
    """A tensor in one piece keeps its old checksum, by which the output shows the damage as well."""
    dcp.save({"w": torch.ones(40)}, checkpoint_id=tmp_path / "one", no_dist=True)
    folder, _ = flipped(tmp_path / "one", tmp_path, lambda each: True)
    convert(ConvertRequest((str(folder),), str(tmp_path / "out.pt")))
    found = ckptdoctor.check(tmp_path / "out.pt", deep=True).findings
    assert [each.keys for each in found if each.code == "F009"] == [(("w",),)]


def test_damage_under_a_view(tmp_path):
    """A folder holds only the elements of a view, with a checksum of their own."""
    torch.save({"w": torch.arange(1000.0)[100:200]}, tmp_path / "w.pt")
    storage = ckptdoctor.open(tmp_path / "w.pt").tensors[0].storage
    data = bytearray((tmp_path / "w.pt").read_bytes())
    data[storage.extent.offset + 4 * 150] ^= 1
    (tmp_path / "w.pt").write_bytes(data)
    with pytest.raises(DamagedError, match="checksum"):
        converted(tmp_path / "w.pt", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_damage_names_the_tensor_in_pieces(tmp_path):
    """check --deep names it, although only one of its pieces is on the damaged storage."""
    folder, key = flipped(SHARDED, tmp_path, lambda each: each.chunks)
    (found,) = [each for each in ckptdoctor.check(folder, deep=True).findings if each.code == "F009"]
    assert [".".join(path) for path in found.keys] == [key]
    assert "1 tensor has other values" in found.message


def test_a_place_of_its_own(tmp_path):
    """A file cannot be the output, a folder of other weights is left alone, and an empty one is taken."""
    torch.save({"a": torch.ones(1)}, tmp_path / "model.pt")
    with pytest.raises(UsageError, match="is a folder"):
        converted(tmp_path / "model.pt", tmp_path / "out.pt")
    with pytest.raises(UsageError, match="shard-size"):
        converted(tmp_path / "model.pt", tmp_path / "out", shard_size=5)
    (tmp_path / "out").mkdir()
    converted(tmp_path / "model.pt", tmp_path / "out")
    with pytest.raises(WriteError, match="not empty"):
        converted(tmp_path / "model.pt", tmp_path / "out")
    (tmp_path / "out" / "__1_0.distcp").write_bytes(b"")
    with pytest.raises(WriteError, match="holds other weights"):
        converted(tmp_path / "model.pt", tmp_path / "out", force=True)
    (tmp_path / "out" / "__1_0.distcp").unlink()
    converted(tmp_path / "model.pt", tmp_path / "out", force=True)


def test_wrong_elements_are_noticed(tmp_path, monkeypatch):
    """The output is held against the tensors that were read, not against what was meant to be written."""
    torch.save({"a": torch.arange(12.0).reshape(3, 4).t()}, tmp_path / "model.pt")
    write = fresh_dcp.write

    def wrong(wanted):
        (stored,) = wanted.stored.values()
        data = segments(replace(stored.shown, stride=(3, 1)))
        return write(replace(wanted, stored={"0": replace(stored, data=data)}))

    monkeypatch.setattr(fresh_dcp, "write", wrong)
    with pytest.raises(WriteError, match="differ in the output"):
        converted(tmp_path / "model.pt", tmp_path / "out")
    assert os.listdir(tmp_path) == ["model.pt"]


@pytest.mark.slow
def test_the_work_grows_with_the_number_of_keys(tmp_path):
    """Ten times as many tensors are about ten times the work, not a hundred times."""
    reports = {}
    for keys in (500, 5_000):
        state = {f"layers.{number}.weight": torch.full((2,), number) for number in range(keys)}
        torch.save(state, tmp_path / f"{keys}.pt")

    def written(keys):
        reports[keys] = converted(tmp_path / f"{keys}.pt", tmp_path / f"out {keys}")

    assert growth(written, 500, 5_000, runs=1) < 40
    assert [report.tensors for report in reports.values()] == [500, 5_000]
