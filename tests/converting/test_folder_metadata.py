"""What the files of a folder say of themselves, tied names above all, is in what is made of the folder."""

from __future__ import annotations

import json
import os

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file, save_model

import ckptdoctor
from ckptdoctor import formats
from tests.commands import run_here

ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
TIES = {"head.weight": "emb.weight", "y.copy": "x"}


def said(*arguments, cwd):
    """What the command prints, once it has succeeded."""
    done = run_here(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def tied(path):
    """A file of torch in which two tensors have two names each."""
    emb, x = torch.randn(20, 20), torch.randn(10, 10)
    torch.save({"emb.weight": emb, "head.weight": emb, "x": x, "y.copy": x, "z": torch.randn(5)}, path)


def texts(path):
    with safe_open(path, "pt") as file:
        return file.metadata()


def shards(folder, first, second, **metadata):
    """Two shards of one tensor each that say these things of themselves, and an index with further entries."""
    folder.mkdir()
    save_file({"module.a": torch.ones(2)}, folder / ONE, {"format": "pt", **first})
    save_file({"module.b": torch.ones(2)}, folder / TWO, {"format": "pt", **second})
    where = {"module.a": ONE, "module.b": TWO}
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 16, **metadata}, "weight_map": where}))


@pytest.fixture
def folder(tmp_path):
    """Shards that were made of a file with ties."""
    tied(tmp_path / "tied.pt")
    said("convert", "tied.pt", "sh", "--shard-size", "1kB", cwd=tmp_path)
    return tmp_path


@pytest.mark.parametrize("way", [["convert", "sh", "back.pt"], ["merge", "sh", "-o", "back.pt"]])
def test_ties_of_shards_come_back(folder, way):
    """Every name is there again, and the two of one tensor share its memory."""
    assert "head.weight → emb.weight, y.copy → x (from the metadata)" in said(*way, cwd=folder)
    got, wanted = torch.load(folder / "back.pt"), torch.load(folder / "tied.pt")
    assert got.keys() == wanted.keys() and all(torch.equal(got[key], wanted[key]) for key in got)
    assert got["head.weight"].data_ptr() == got["emb.weight"].data_ptr()


def test_ties_of_shards_are_noted_in_one_file(folder):
    """What merge writes as safetensors has the notes of all shards."""
    said("merge", "sh", "-o", "m.safetensors", cwd=folder)
    assert texts(folder / "m.safetensors") == {"format": "pt", **TIES}


def test_ties_of_shards_are_noted_in_other_shards(folder):
    """Each note is in the shard that has the tensor, and in no other."""
    said("convert", "sh", "sh2", "--shard-size", "1.9kB", cwd=folder)
    found = {name: texts(folder / "sh2" / name) for name in sorted(os.listdir(folder / "sh2")) if "-of-" in name}
    for name, metadata in found.items():
        with safe_open(folder / "sh2" / name, "pt") as file:
            keys = set(file.keys())
        assert metadata == {"format": "pt", **{alias: owner for alias, owner in TIES.items() if owner in keys}}
    assert len(found) > 1


def test_ties_of_shards_come_back_in_a_distributed_checkpoint(folder):
    """It has no tied names, so both are written."""
    said("convert", "sh", "d", "--to", "dcp", cwd=folder)
    assert set(ckptdoctor.load(folder / "d")) == {"emb.weight", "head.weight", "x", "y.copy", "z"}


@pytest.mark.parametrize("part", ["sh", "one.safetensors"])
def test_ties_of_a_part_have_the_names_of_the_model(folder, part):
    """Both names of a tensor get the prefix of the part that it is in."""
    said("convert", "tied.pt", "one.safetensors", cwd=folder)
    said("merge", "--part", f"b={part}", "-o", "m.safetensors", cwd=folder)
    assert texts(folder / "m.safetensors") == {
        "format": "pt",
        **{f"b.{alias}": f"b.{owner}" for alias, owner in TIES.items()},
    }


class Tied(torch.nn.Module):
    """A model whose output layer is its embedding."""

    def __init__(self):
        super().__init__()
        self.emb = torch.nn.Embedding(5, 4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.emb.weight


@pytest.mark.parametrize(
    ("beside", "root", "at"),
    [
        ({}, [], ()),
        ({"trainer_state.json": b"{}"}, [], ("model",)),
        ({"trainer_state.json": b"{}"}, ["--root", "model"], ()),
        ({"random_states_0.pkl": b"\x80\x02}."}, [], ("model",)),
    ],
)
def test_ties_of_a_folder_with_one_file_come_back(tmp_path, beside, root, at):
    """A model's folder, a Trainer's and one of accelerate: save_model's note is read there too."""
    (tmp_path / "f").mkdir()
    save_model(Tied(), tmp_path / "f" / "model.safetensors")
    for name, data in beside.items():
        (tmp_path / "f" / name).write_bytes(data)
    if "trainer_state.json" in beside:
        torch.save({"state": {}, "param_groups": [{"params": []}]}, tmp_path / "f" / "optimizer.pt")
    said("convert", "f", "o.pt", *root, cwd=tmp_path)
    got = torch.load(tmp_path / "o.pt")
    for part in at:
        got = got[part]
    assert set(got) == {"emb.weight", "head.weight"}


def test_flattened_ties_have_flattened_names(tmp_path):
    """The second name is noted as the first is written."""
    (tmp_path / "f").mkdir()
    save_model(Tied(), tmp_path / "f" / "model.safetensors")
    (tmp_path / "f" / "trainer_state.json").write_text("{}")
    torch.save({"state": {0: {"m": torch.ones(2)}}, "param_groups": []}, tmp_path / "f" / "optimizer.pt")
    said("convert", "f", "o.safetensors", "--flatten", cwd=tmp_path)
    assert texts(tmp_path / "o.safetensors") == {"format": "pt", "model/head.weight": "model/emb.weight"}
    said("convert", "f", "p.safetensors", "--root", "model", cwd=tmp_path)
    assert texts(tmp_path / "p.safetensors") == {"format": "pt", "head.weight": "emb.weight"}
    said("convert", "f", "q.safetensors", "--root", "optimizer/state/0", cwd=tmp_path)
    assert texts(tmp_path / "q.safetensors") == {"format": "pt"}


@pytest.mark.parametrize("way", [["merge", "f", "-o", "m.safetensors"], ["fix", "f", "-o", "m.safetensors"]])
def test_texts_of_shards_are_kept(tmp_path, way):
    """An entry that all agree about, or that only one has, is in the output."""
    shards(tmp_path / "f", {"note": "my note", "by": "me"}, {"note": "my note"})
    assert "left out" not in said(*way, cwd=tmp_path)
    assert texts(tmp_path / "m.safetensors") == {"format": "pt", "note": "my note", "by": "me"}


def test_texts_of_shards_are_kept_next_to_a_file_of_torch(tmp_path):
    """What has no place in it is in the file next to it."""
    shards(tmp_path / "f", {"note": "my note"}, {})
    assert "kept      note of the metadata in m.extra.json" in said("convert", "f", "m.pt", cwd=tmp_path)
    assert json.loads((tmp_path / "m.extra.json").read_text())["metadata"] == {"note": "my note"}


@pytest.mark.parametrize(
    "way",
    [
        ["convert", "f", "m.safetensors"],
        ["convert", "f", "m.pt"],
        ["convert", "f", "m", "--to", "dcp"],
        ["fix", "f", "-o", "m/"],
        ["merge", "one.safetensors", "two.safetensors", "-o", "m.safetensors"],
    ],
)
def test_texts_about_which_files_disagree_are_left_out_aloud(tmp_path, way):
    """Neither value is chosen, and the name of the entry is reported."""
    shards(tmp_path / "f", {"rank": "0"}, {"rank": "1"})
    (tmp_path / "one.safetensors").write_bytes((tmp_path / "f" / ONE).read_bytes())
    (tmp_path / "two.safetensors").write_bytes((tmp_path / "f" / TWO).read_bytes())
    assert "left out  rank of the metadata (the files disagree)" in said(*way, cwd=tmp_path)
    assert formats.open_checkpoint(tmp_path / "f").metadata == {"format": "pt"}
    written = tmp_path / way[-1] if way[0] == "merge" else tmp_path / "m.safetensors"
    if written.exists():
        assert texts(written) == {"format": "pt"}


def test_an_index_keeps_what_it_says(tmp_path):
    """The entries of its metadata are in the new index, and what it counts is counted again."""
    shards(tmp_path / "f", {}, {}, total_parameters=3, by="me")
    assert "left out  by of the index" in said("convert", "f", "m.safetensors", cwd=tmp_path)
    said("convert", "f", "sh", "--shard-size", "8B", cwd=tmp_path)
    metadata = json.loads((tmp_path / "sh" / INDEX).read_text())["metadata"]
    assert metadata == {"total_size": 16, "total_parameters": 4, "by": "me"}


def test_a_salvaged_index_keeps_what_it_says(tmp_path):
    """A shard less, and so fewer parameters."""
    shards(tmp_path / "f", {}, {}, total_parameters=4, by="me")
    (tmp_path / "f" / TWO).unlink()
    run_here("salvage", "f", cwd=tmp_path)
    (index,) = tmp_path.glob(f"f*salvaged*/{INDEX}")
    assert json.loads(index.read_text())["metadata"] == {"total_size": 8, "total_parameters": 2, "by": "me"}


# ---- tied names where tensors are renamed


@pytest.mark.parametrize("way", [["-o", "out.safetensors"], ["--in-place"]])
@pytest.mark.parametrize(
    ("option", "new"),
    [
        (["--add-prefix", "net."], "net.m.{}"),
        (["--strip-prefix", "m."], "{}"),
    ],
)
def test_tied_names_of_a_file_follow_the_keys(tmp_path, way, option, new):
    """Both names are new ones, nothing else of the header changes, and converting gives back every name."""
    metadata = {"by": "me", "m.head.weight": "m.emb.weight", "format": "pt", "m.y.copy": "m.x"}
    tensors = {"m.emb.weight": torch.randn(20, 20), "m.x": torch.randn(5), "m.z": torch.randn(5)}
    save_file(tensors, tmp_path / "s.safetensors", metadata)
    before = (tmp_path / "s.safetensors").read_bytes()
    assert "2 tied names" in said("fix", "s.safetensors", *option, *way, cwd=tmp_path)
    name = way[-1] if way[0] == "-o" else "s.safetensors"
    wanted = {new.format("head.weight"): new.format("emb.weight"), new.format("y.copy"): new.format("x")}
    assert texts(tmp_path / name) == {"by": "me", "format": "pt", **wanted}
    said("convert", name, "back.pt", cwd=tmp_path)
    ends = ("emb.weight", "x", "z", "head.weight", "y.copy")
    assert set(torch.load(tmp_path / "back.pt")) == {new.format(end) for end in ends}
    if way[0] == "--in-place":
        said("undo", "s.safetensors", cwd=tmp_path)
        assert (tmp_path / "s.safetensors").read_bytes() == before


@pytest.mark.parametrize("way", [["-o", "out/"], ["--in-place"]])
def test_tied_names_of_shards_follow_the_keys(folder, way):
    """In a folder of its own, and in the files themselves."""
    assert "2 tied names" in said("fix", "sh", "--add-prefix", "m.", *way, cwd=folder)
    said("convert", "out" if way[0] == "-o" else "sh", "back.pt", cwd=folder)
    assert set(torch.load(folder / "back.pt")) == {f"m.{key}" for key in torch.load(folder / "tied.pt")}


def test_what_is_taken_out_of_a_run_has_its_own_metadata(tmp_path):
    """The optimizer of a Trainer's folder does not get the tied names of the model."""
    (tmp_path / "f").mkdir()
    save_model(Tied(), tmp_path / "f" / "model.safetensors")
    (tmp_path / "f" / "trainer_state.json").write_text("{}")
    torch.save({"state": {0: {"m": torch.ones(2)}}, "param_groups": []}, tmp_path / "f" / "optimizer.pt")
    for root, keys in (("model", {"emb.weight", "head.weight"}), ("optimizer", {"state", "param_groups"})):
        for way in (["fix", "f", "-o", f"{root}.pt"], ["convert", "f", f"{root}2.pt"]):
            said(*way, "--root", root, cwd=tmp_path)
        assert set(torch.load(tmp_path / f"{root}.pt")) == set(torch.load(tmp_path / f"{root}2.pt")) == keys
    assert not list(tmp_path.glob("*.extra.json"))
