"""Hugging Face folders: shards by their index, shards by their numbers, and a file by itself."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

import ckptdoctor
from ckptdoctor import formats
from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.errors import NotACheckpointError
from tests.formats.folders.same import assert_same
from tests.libraries import real, transformers

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def model():
    """A small model with tied weights."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=4, n_head=2, n_embd=32, vocab_size=100, n_positions=16)
    return transformers.GPT2LMHeadModel(config)


@pytest.fixture(scope="module")
def sharded(model, tmp_path_factory):
    """What transformers writes with a small limit for each shard."""
    path = tmp_path_factory.mktemp("shards")
    model.save_pretrained(path, max_shard_size="60KB")
    return path


@real
def test_shards_of_transformers(model, sharded):
    """The union of the shards is the model's state dict, but for the name that transformers leaves out of a tie."""
    loaded = ckptdoctor.load(sharded)
    wanted = {key: value for key, value in model.state_dict().items() if key != "lm_head.weight"}
    assert_same(dict(sorted(loaded.items())), dict(sorted(wanted.items())))
    checkpoint = formats.open_checkpoint(sharded)
    assert len({storage.extent.file for storage in checkpoint.storages}) > 2
    assert (checkpoint.notes, checkpoint.state_dicts[0].path) == ((), ())
    assert checkpoint.size == sum(path.stat().st_size for path in sharded.glob("*.safetensors"))


@real
def test_the_state_dict_fits_the_model(model, sharded):
    """load_state_dict takes a folder as it takes a file."""
    loaded = ckptdoctor.load_state_dict(sharded, model.transformer)
    assert_same(dict(loaded), dict(model.transformer.state_dict()))


@real
def test_without_the_index(sharded, tmp_path):
    """Shards that number themselves need no index."""
    path = shutil.copytree(sharded, tmp_path / "copy")
    (path / INDEX).unlink()
    assert_same(ckptdoctor.load(path), ckptdoctor.load(sharded))


@real
def test_a_shard_that_is_missing_without_an_index(sharded, tmp_path):
    """The numbers in the names tell which one."""
    path = shutil.copytree(sharded, tmp_path / "copy")
    (path / INDEX).unlink()
    gone = sorted(path.glob("*.safetensors"))[1]
    gone.unlink()
    (note,) = formats.open_checkpoint(path).notes
    assert (note.kind, note.message) == (NoteKind.FILE_MISSING, f"{gone.name} is missing")


@real
def test_one_file(model, tmp_path):
    """A model's folder with one file is that file."""
    model.save_pretrained(tmp_path / "single")
    assert_same(ckptdoctor.load(tmp_path / "single"), ckptdoctor.load(tmp_path / "single" / "model.safetensors"))
    assert formats.open_checkpoint(tmp_path / "single").format == "Hugging Face model folder"


def bin_shards(folder, total=24):
    """Two shards of torch.save, with a tie within one of them."""
    tied = torch.ones(2)
    torch.save({"a": tied, "b": tied}, folder / "pytorch_model-00001-of-00002.bin")
    torch.save({"c": torch.zeros(2)}, folder / "pytorch_model-00002-of-00002.bin")
    table = {"a": 1, "b": 1, "c": 2}
    names = {key: f"pytorch_model-0000{number}-of-00002.bin" for key, number in table.items()}
    index = {"metadata": {"total_size": total}, "weight_map": names}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(("total", "said"), [(1, "counts 1 byte of"), (2, "counts 2 bytes of")])
def test_a_wrong_total_is_counted_in_words(total, said, tmp_path):
    """One byte is not "1 bytes"."""
    bin_shards(tmp_path, total)
    [note] = formats.open_checkpoint(tmp_path).notes
    assert note.message == f"pytorch_model.bin.index.json {said} tensors, but there are 16"


@pytest.mark.parametrize("total", [16, 24])
def test_shards_of_torch(total, tmp_path):
    """Shards may be pickles; storages of different files never mix, ties within one stay, and count once or twice."""
    bin_shards(tmp_path, total)
    checkpoint = formats.open_checkpoint(tmp_path)
    assert (checkpoint.notes, len(checkpoint.storages)) == ((), 2)
    loaded = ckptdoctor.load(tmp_path)
    assert_same(loaded, {"a": torch.ones(2), "b": torch.ones(2), "c": torch.zeros(2)})
    assert loaded["a"].data_ptr() == loaded["b"].data_ptr()
    assert [each.member.split("/")[0] for each in checkpoint.globals][:1] == ["pytorch_model-00001-of-00002.bin"]


def made(folder, table, first, second):
    """Two shards with these tensors, and an index."""
    save_file(first, folder / FIRST, {"format": "pt"})
    save_file(second, folder / SECOND, {"format": "pt"})
    (folder / INDEX).write_text(json.dumps({"weight_map": table}))
    return formats.open_checkpoint(folder)


def test_of_two_values_the_one_that_the_index_names_counts(tmp_path):
    """A tensor in both shards is told, and taken from where the index says."""
    checkpoint = made(tmp_path, {"a": SECOND}, {"a": torch.zeros(2)}, {"a": torch.ones(2)})
    assert [note.kind for note in checkpoint.notes] == [NoteKind.KEY_IN_TWO_FILES]
    assert_same(ckptdoctor.load(tmp_path), {"a": torch.ones(2)})


def test_a_tensor_is_taken_from_where_it_lies(tmp_path):
    """Where the index names the wrong shard, the tensor is still found, and the index told to be wrong."""
    checkpoint = made(tmp_path, {"a": SECOND, "b": SECOND}, {"a": torch.zeros(2)}, {"b": torch.ones(2)})
    (note,) = checkpoint.notes
    assert note.kind is NoteKind.INDEX_WRONG
    assert note.message == f"{INDEX} looks for a in the wrong file: a is in {FIRST}, not in {SECOND}"
    assert set(ckptdoctor.load(tmp_path)) == {"a", "b"}


def test_an_index_of_another_save(tmp_path):
    """Missing shards are no missing shards where others hold their tensors."""
    save_file({"a": torch.ones(2), "b": torch.ones(2)}, tmp_path / "model-00001-of-00001.safetensors")
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": FIRST, "b": SECOND}}))
    checkpoint = formats.open_checkpoint(tmp_path)
    assert [note.kind for note in checkpoint.notes] == [NoteKind.INDEX_STALE]
    assert set(ckptdoctor.load(tmp_path)) == {"a", "b"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "[" * 100_000])
def test_an_index_that_is_none(text, tmp_path):
    """The shards are read by their numbers then."""
    made(tmp_path, {}, {"a": torch.zeros(2)}, {"b": torch.ones(2)})
    (tmp_path / INDEX).write_text(text)
    checkpoint = formats.open_checkpoint(tmp_path)
    assert [note.kind for note in checkpoint.notes] == [NoteKind.INDEX_WRONG]
    assert len(checkpoint.tensors) == 2


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "a/../../x.safetensors", "\0", ""])
def test_names_that_lead_outside(name, tmp_path):
    """They are not opened, and told."""
    folder = tmp_path / "inner"
    folder.mkdir()
    save_file({"a": torch.zeros(2)}, tmp_path / "x.safetensors")
    checkpoint = made(folder, {"a": name, "b": SECOND}, {"c": torch.zeros(2)}, {"b": torch.zeros(2)})
    assert NoteKind.FILE_OUTSIDE in {note.kind for note in checkpoint.notes}
    assert "a" not in {tensor.key for tensor in checkpoint.tensors}


def test_a_shard_that_is_a_pointer_of_git(tmp_path):
    """What lies in place of a shard is told with the tensors that are lost with it, and with what to do."""
    made(tmp_path, {"a": FIRST, "b": SECOND}, {"a": torch.zeros(2)}, {"b": torch.zeros(2)})
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 123\n"
    (tmp_path / SECOND).write_text(pointer)
    (note,) = formats.open_checkpoint(tmp_path).notes
    assert (note.kind, note.member, note.keys) == (NoteKind.FILE_DAMAGED, SECOND, (("b",),))
    assert note.message.startswith(
        f"{SECOND}, with 1 tensor of the index, cannot be read: a Git LFS pointer is here instead of the file of 123"
    )
    assert "git lfs pull" in note.guidance


def test_loose_files_are_no_checkpoint(tmp_path):
    """Nothing says that two files belong together."""
    save_file({"a": torch.zeros(2)}, tmp_path / "a.safetensors")
    save_file({"a": torch.zeros(2)}, tmp_path / "b.safetensors")
    with pytest.raises(NotACheckpointError):
        formats.open_checkpoint(tmp_path)


@pytest.mark.slow
def test_fifty_thousand_keys_in_a_thousand_files(tmp_path):
    """Nothing takes time that grows with keys times files."""
    table = {}
    for number in range(1, 501):
        name = f"model-{number:05}-of-00500.safetensors"
        keys = [f"layers.{number}.{index}" for index in range(100)]
        save_file({key: torch.zeros(1) for key in keys}, tmp_path / name)
        table |= dict.fromkeys(keys, name)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": table}))
    checkpoint = formats.open_checkpoint(tmp_path)
    assert (len(checkpoint.tensors), checkpoint.notes) == (50_000, ())
