"""Folders of the Trainer, of DeepSpeed and Megatron, and archives that were unpacked."""

from __future__ import annotations

import zipfile
from collections import OrderedDict
from enum import IntEnum

import pytest
import torch

import ckptdoctor
from ckptdoctor import formats
from ckptdoctor.checkpoint import NoteKind, Role
from ckptdoctor.errors import DamagedError, NotACheckpointError
from ckptdoctor.rules.sharding.deepspeed_dir import DeepSpeed, deepspeed
from tests.formats.folders.same import assert_same
from tests.libraries import real, transformers

# ---- Trainer


class Rows(torch.utils.data.Dataset):
    """A few rows of text."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return {"input_ids": torch.arange(8), "labels": torch.arange(8)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What the Trainer saves after two steps."""
    path = tmp_path_factory.mktemp("trainer")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=8)
    model = transformers.GPT2LMHeadModel(config)
    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True}
    asked = transformers.TrainingArguments(str(path), max_steps=2, save_steps=2, **quiet)
    transformers.Trainer(model, asked, train_dataset=Rows()).train()
    return path / "checkpoint-2"


@real
@pytest.mark.filterwarnings("ignore")
def test_a_trainer_checkpoint(trained):
    """The model and what is needed to go on are branches of one checkpoint."""
    loaded = ckptdoctor.load(trained)
    assert list(loaded) == ["model", "optimizer", "scheduler", "rng_state"]
    assert_same(loaded["model"], ckptdoctor.load(trained / "model.safetensors"))
    assert_same(loaded["optimizer"], torch.load(trained / "optimizer.pt", weights_only=True))
    assert_same(loaded["scheduler"], torch.load(trained / "scheduler.pt", weights_only=True))
    roles = {each.path[0]: each.role for each in formats.open_checkpoint(trained).state_dicts}
    assert roles["model"] is Role.MODEL and roles["optimizer"] is Role.OPTIMIZER


def test_random_generators_of_each_rank(tmp_path):
    """They stand under the numbers of their ranks."""
    (tmp_path / "trainer_state.json").write_text("{}")
    for rank in (0, 10, 2):
        torch.save({"cpu": torch.get_rng_state()}, tmp_path / f"rng_state_{rank}.pth")
    assert list(ckptdoctor.load(tmp_path)["rng_state"]) == [0, 2, 10]


# ---- DeepSpeed


class ZeroStageEnum(IntEnum):
    """Stands for deepspeed.runtime.zero.config.ZeroStageEnum."""

    TWO = 2


SHAPES = [OrderedDict(wte=torch.Size([4, 2]), ln=torch.Size([2]))]


def states(module, stage, world):
    """The contents of a model states file, as DeepSpeedEngine._save_checkpoint puts them together."""
    return {
        "module": module,
        "buffer_names": [],
        "optimizer": None,
        "param_shapes": SHAPES,
        "frozen_param_shapes": None,
        "shared_params": {},
        "lr_scheduler": None,
        "global_steps": 10,
        "dp_world_size": world,
        "mp_world_size": 1,
        "ds_config": {"train_batch_size": 2, "zero_optimization": {"stage": stage}},
        "ds_version": "0.17.1",
    }


def partition(stage, world):
    """The contents of an optimizer states file of ZeRO."""
    flat = {"single_partition_of_fp32_groups" if stage < 3 else "fp32_flat_groups": [torch.zeros(5)]}
    count = [world] if stage < 3 else world
    return {
        "optimizer_state_dict": {"zero_stage": stage, "partition_count": count, "loss_scaler": None, **flat},
        "ds_config": {},
        "ds_version": "0.17.1",
    }


def saved(folder, stage, world, present=None):
    """A folder as DeepSpeed leaves it."""
    step = folder / "global_step10"
    step.mkdir(parents=True)
    (folder / "latest").write_text("global_step10")
    (folder / "zero_to_fp32.py").write_text("")
    if stage < 3:
        module = OrderedDict(wte=torch.ones(4, 2).half(), ln=torch.ones(2).half())
        torch.save(states(module, stage, world), step / "mp_rank_00_model_states.pt")
    for rank in range(world) if present is None else present:
        if stage == 3:
            module = OrderedDict(wte=torch.empty(0), ln=torch.empty(0))
            torch.save(states(module, 3, world), step / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
        if stage:
            torch.save(partition(stage, world), step / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    return folder


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_stages_of_zero(stage, tmp_path):
    """Stage, ranks and partitions are told; up to stage 2 the weights are a state dict under module."""
    checkpoint = formats.open_checkpoint(saved(tmp_path / "ds", stage, 12))
    present = tuple(range(12)) if stage else ()
    assert deepspeed(checkpoint.tree) == DeepSpeed(stage, 12, present, 1)
    weights = [each for each in checkpoint.state_dicts if each.path == ("module",)]
    assert [each.keys for each in weights] == ([("wte", "ln")] if stage < 3 else [])


def test_a_rank_whose_partition_is_missing(tmp_path):
    """What is there is held against the count that each partition has."""
    checkpoint = formats.open_checkpoint(saved(tmp_path / "ds", 2, 4, present=(0, 3)))
    found = deepspeed(checkpoint.tree)
    assert (found.partitions, found.missing) == ((0, 3), (1, 2))


def test_the_folder_of_the_step(tmp_path):
    """The folder with the files themselves may be named too."""
    saved(tmp_path / "ds", 2, 2)
    step, whole = (formats.open_checkpoint(path) for path in (tmp_path / "ds" / "global_step10", tmp_path / "ds"))
    assert [tensor.path for tensor in step.tensors] == [tensor.path for tensor in whole.tensors]


def test_a_stage_that_is_a_member_of_an_enum(tmp_path):
    """DeepSpeed pickles the stage as what its configuration has it in."""
    step = saved(tmp_path / "ds", 2, 1) / "global_step10"
    said = partition(2, 1)
    said["optimizer_state_dict"]["zero_stage"] = ZeroStageEnum.TWO
    torch.save(said, step / "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    assert deepspeed(formats.open_checkpoint(tmp_path / "ds").tree).stage == 2


def test_latest_that_leads_elsewhere(tmp_path):
    """Only a folder that lies here is followed."""
    saved(tmp_path / "outside", 2, 1)
    folder = tmp_path / "inner"
    folder.mkdir()
    (folder / "latest").write_text("../outside/global_step10")
    with pytest.raises(NotACheckpointError):
        formats.open_checkpoint(folder)


# ---- Megatron


def megatron(folder, *ranks):
    """A folder of Megatron-LM with the files of these ranks."""
    (folder / "latest_checkpointed_iteration.txt").write_text("100")
    for number, rank in enumerate(ranks):
        path = folder / "iter_0000100" / rank
        path.mkdir(parents=True)
        contents = {"model": {"language_model": {"w": torch.full((2,), number)}}, "iteration": 100}
        torch.save(contents, path / "model_optim_rng.pt")
    return folder


def test_megatron_with_one_rank(tmp_path):
    """The only rank's contents are those of the checkpoint."""
    assert list(ckptdoctor.load(megatron(tmp_path, "mp_rank_00"))) == ["model", "iteration"]


def test_megatron_with_several_ranks(tmp_path):
    """Nothing is merged: each rank is a branch."""
    loaded = ckptdoctor.load(megatron(tmp_path, "mp_rank_00_000", "mp_rank_01_000"))
    assert list(loaded) == ["mp_rank_00_000", "mp_rank_01_000"]
    assert loaded["mp_rank_01_000"]["model"]["language_model"]["w"].tolist() == [1, 1]


# ---- unpacked archives


@pytest.fixture
def unpacked(tmp_path):
    """The folder that an archiver makes of a file of torch.save, and that file."""
    tied = torch.arange(6.0)
    torch.save({"a": tied, "b": tied[2:4], "n": [1, torch.ones(2, dtype=torch.bfloat16)]}, tmp_path / "model.pt")
    with zipfile.ZipFile(tmp_path / "model.pt") as archive:
        archive.extractall(tmp_path / "out")
    return tmp_path / "out" / "model", tmp_path / "model.pt"


def test_an_unpacked_archive(unpacked):
    """The folder, and the one around it, hold what the file does."""
    folder, file = unpacked
    for path in (folder, folder.parent):
        assert_same(ckptdoctor.load(path), torch.load(file, weights_only=True))
        checkpoint = formats.open_checkpoint(path)
        assert (checkpoint.format, checkpoint.notes) == ("unpacked torch archive", ())


def test_an_unpacked_archive_without_a_record(unpacked):
    """Values that are not there are told, and refused when they are wanted."""
    folder, _ = unpacked
    (folder / "data" / "0").unlink()
    (note,) = formats.open_checkpoint(folder).notes
    assert note.kind is NoteKind.STORAGE_MISSING
    with pytest.raises(DamagedError):
        ckptdoctor.load(folder)


def test_a_big_endian_one(unpacked):
    """The byteorder file counts as the record does."""
    folder, _ = unpacked
    (folder / "byteorder").write_text("big")
    assert [note.kind for note in formats.open_checkpoint(folder).notes] == [NoteKind.BIG_ENDIAN]
