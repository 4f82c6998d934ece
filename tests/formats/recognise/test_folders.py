"""Folders that are one checkpoint in several files are named by the names in them."""

from __future__ import annotations

import pytest

from ckptdoctor import formats

FOLDERS = [
    ("torch distributed checkpoint", [".metadata", "__0_0.distcp"]),
    ("torch distributed checkpoint", ["__0_0.distcp", "__1_0.distcp"]),
    ("DeepSpeed checkpoint", ["latest", "global_step100/x", "zero_to_fp32.py"]),
    ("DeepSpeed checkpoint", ["mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"]),
    ("Megatron checkpoint", ["latest_checkpointed_iteration.txt", "iter_0000100/x"]),
    ("Megatron checkpoint", ["mp_rank_00/model_optim_rng.pt"]),
    ("unpacked torch archive", ["data.pkl", "data/0", "version"]),
    ("unpacked torch archive", ["archive/data.pkl", "archive/data/0", "archive/version"]),
    ("sharded Hugging Face checkpoint", ["model.safetensors.index.json", "model-00001-of-00002.safetensors"]),
    ("sharded Hugging Face checkpoint", ["config.json", "pytorch_model.bin.index.json"]),
    ("Hugging Face Trainer checkpoint", ["trainer_state.json", "optimizer.pt", "model.safetensors", "config.json"]),
    ("Hugging Face model folder", ["config.json", "model.safetensors"]),
    ("folder of distributed safetensors pieces", ["config.json", "shard-00001-model-00001-of-00001.safetensors"]),
    ("TensorFlow SavedModel", ["saved_model.pb", "variables/variables.index"]),
    ("TensorFlow checkpoint", ["checkpoint", "model.ckpt-1.index", "model.ckpt-1.data-00000-of-00001"]),
    ("Orbax checkpoint", ["_CHECKPOINT_METADATA", "manifest.ocdbt"]),
    ("Zarr store", [".zgroup", "w/.zarray"]),
]


def fill(folder, names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


@pytest.mark.parametrize(("name", "files"), FOLDERS)
def test_known_folders_are_named_with_what_opens_them(name, files, tmp_path):
    """Nothing in them is opened; the names are enough."""
    fill(tmp_path, files)
    container = formats.examine_directory(tmp_path)
    assert (container.format, container.path) == (name, str(tmp_path))
    assert container.readable or container.guidance.endswith(".")


@pytest.mark.parametrize("files", [[], ["a.pt", "b.pt"], ["notes/x", "model.safetensors"], ["data.pkl"]])
def test_other_folders_are_nothing_known(files, tmp_path):
    """Loose checkpoints in a folder do not make it one."""
    fill(tmp_path, files)
    assert formats.examine_directory(tmp_path) is None


def test_what_is_no_folder_is_nothing_known(tmp_path):
    """Neither a missing path nor a file is a folder."""
    (tmp_path / "file").write_bytes(b"x")
    assert formats.examine_directory(tmp_path / "file") is None
    assert formats.examine_directory(tmp_path / "nothing") is None
