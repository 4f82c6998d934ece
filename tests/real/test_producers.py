"""What other programs write is read as their own loaders read it, and converted without changing a bit."""

from __future__ import annotations

import random
import shlex
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import pytest
import torch
import torch.multiprocessing
from safetensors.torch import load_file
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.utils.data import DataLoader, TensorDataset

import ckptdoctor
from ckptdoctor.errors import RefusedError
from tests.commands import run
from tests.libraries import accelerate, lightning, real, transformers
from tests.real import producers_gloo
from tests.real.producers import PRODUCERS, Made
from tests.real.same import assert_same, bits, tensors_of
from tests.repair.test_loadable import disagreement

pytestmark = pytest.mark.filterwarnings("ignore")

# what safetensors has no words for
UNSPEAKABLE = {"sparse tensors", "quantized tensors"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Each producer's file, written when it is first asked for."""
    found: dict[str, Made] = {}

    def get(name: str) -> Made:
        if name not in found:
            torch.manual_seed(0)
            found[name] = PRODUCERS[name](tmp_path_factory.mktemp("made"))
        return found[name]

    return get


@pytest.mark.parametrize("name", PRODUCERS)
def test_contents_are_what_the_producers_loader_reads(name, made):
    """Keys in their order, types, shapes, strides and values; and nothing about it is called damage."""
    path, theirs = made(name)
    assert_same(ckptdoctor.load(path), theirs)
    report = ckptdoctor.check(path)
    assert report.error is None and not [each for each in report.findings if each.code[0] == "F"]


@pytest.mark.parametrize("name", PRODUCERS)
def test_a_torch_file_of_it_holds_the_same(name, made, tmp_path):
    """``torch.load`` reads from the converted file what the producer's loader reads from the original."""
    path, theirs = made(name)
    ckptdoctor.convert(path, tmp_path / "y.pt")
    safe = "protocol" not in name
    assert_same(torch.load(tmp_path / "y.pt", weights_only=safe), theirs)


@pytest.mark.parametrize("name", PRODUCERS)
def test_a_safetensors_file_of_it_holds_the_same(name, made, tmp_path):
    """Every tensor under its whole path, to the last bit; or a refusal that names what has no place there."""
    path, _ = made(name)
    output = tmp_path / "y.safetensors"
    if name in UNSPEAKABLE:
        with pytest.raises(RefusedError, match="safetensors"):
            ckptdoctor.convert(path, output, flatten=True, clone_ties=True)
        return
    expected = tensors_of(ckptdoctor.load(path))
    ckptdoctor.convert(path, output, flatten=True, clone_ties=True)
    written = load_file(output)
    assert {key: bits(written[key]) for key in expected} == {key: bits(value) for key, value in expected.items()}


@pytest.mark.parametrize("name", PRODUCERS)
def test_whether_torch_loads_it_is_told_as_torch_does(name, made):
    """What weights_only lets pass is known without torch, of every kind of file that programs write."""
    assert disagreement(Path(made(name)[0])) == ""


def test_the_weights_of_a_frozen_script_are_its_constants(made):
    """Its state dict is empty, but the file is not: nobody is told that the weights were never written."""
    path, theirs = made("a frozen script")
    assert not theirs and ckptdoctor.open(path).tensors
    assert [each.code for each in ckptdoctor.check(path).findings] == ["C107"]


# ---- two processes; tests/formats/folders/test_dcp.py asks the first run about what two write together


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The folder with what two processes have written."""
    folder = tmp_path_factory.mktemp("together")
    torch.multiprocessing.spawn(producers_gloo.work, args=(str(folder),), nprocs=producers_gloo.PROCESSES)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", producers_gloo.FOLDERS)
def test_a_distributed_checkpoint_is_what_torch_gathers(name, together, tmp_path):
    """Without a process group; and converted, it is what ``dcp_to_torch_save`` writes."""
    dcp_to_torch_save(together / name, tmp_path / "theirs.pt")
    theirs = torch.load(tmp_path / "theirs.pt", weights_only=False)
    ours = ckptdoctor.load(together / name)
    assert set(ours) == set(theirs)
    assert_same({key: ours[key] for key in theirs}, theirs)
    ckptdoctor.convert(together / name, tmp_path / "ours.pt")
    converted = torch.load(tmp_path / "ours.pt", weights_only=True)
    assert_same({key: converted[key] for key in theirs}, theirs)


@pytest.mark.slow
def test_the_whole_state_dict_of_a_sharded_model_is_a_plain_one(together):
    """What rank 0 saves after gathering."""
    path = together / "fsdp2_whole.pt"
    assert_same(ckptdoctor.load(path), torch.load(path, weights_only=True))
    assert not ckptdoctor.check(path).findings


@pytest.mark.slow
def test_one_process_s_part_is_called_one(together):
    """torch loads it after an import, which is said; no class is called refused that the import makes known."""
    report = ckptdoctor.check(together / "fsdp2_rank0.pt")
    assert {each.code for each in report.findings} >= {"P201", "X810", "X812"}
    (blocked,) = [each for each in report.findings if each.code == "P201"]
    assert "only after an import" in blocked.message


# ---- accelerate, Lightning and Hugging Face


@real
def test_accelerate_s_files_and_shards(tmp_path):
    """Models in safetensors and not, in one file and in several, and the state of a training."""
    accelerator = accelerate.Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    net, _ = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    accelerator.save_state(tmp_path / "state")
    accelerator.save_model(net, tmp_path / "shards", max_shard_size="20KB")
    accelerator.save_model(net, tmp_path / "bins", max_shard_size="20KB", safe_serialization=False)
    for folder, loader in (("shards", load_file), ("bins", torch.load)):
        files = sorted(each for each in (tmp_path / folder).iterdir() if each.suffix in (".safetensors", ".bin"))
        theirs = {key: value for each in files for key, value in loader(each).items()}
        ours = ckptdoctor.load(tmp_path / folder)
        assert len(files) > 1 and set(ours) == set(theirs)
        assert_same({key: ours[key] for key in theirs}, theirs, strides=False)
    for name in ("optimizer.bin", "model.safetensors"):
        path = tmp_path / "state" / name
        assert_same(ckptdoctor.load(path), load_file(path) if path.suffix == ".safetensors" else torch.load(path))


@real
def test_a_training_of_accelerate_goes_on_with_the_same_numbers(tmp_path):
    """Its random states hold an array, which torch.load refuses; with the repaired file nothing is another number."""
    accelerator = accelerate.Accelerator(cpu=True)
    model = nn.Linear(2, 2)
    accelerator.prepare(model, torch.optim.SGD(model.parameters()))
    np.random.seed(7)
    accelerator.save_state(tmp_path / "state")
    wanted = np.random.rand(700).tolist(), torch.rand(3).tolist(), random.random()
    path = tmp_path / "state/random_states_0.pkl"
    with pytest.raises(UnpicklingError):
        torch.load(path)
    said = run("fix", path, cwd=tmp_path).stdout.decode()
    (command,) = [line.partition("ckptdoctor ")[2] for line in said.splitlines() if "--weights-only-safe" in line]
    done = run(*shlex.split(command), "-o", path, "--force", cwd=tmp_path)
    assert done.returncode == 0, done
    assert isinstance(torch.load(path)["numpy_random_seed"][1], torch.Tensor)
    accelerator.load_state(tmp_path / "state")
    assert (np.random.rand(700).tolist(), torch.rand(3).tolist(), random.random()) == wanted


@real
def test_a_trainer_of_hugging_face(tmp_path):
    """Its folder is a model's weights beside an optimizer, a scheduler and generators."""
    config = transformers.BertConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=50
    )
    model = transformers.BertForSequenceClassification(config)
    arguments = transformers.TrainingArguments(str(tmp_path), max_steps=1, save_steps=1, report_to=[], use_cpu=True)
    data = [{"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor(0)}] * 8
    transformers.Trainer(model=model, args=arguments, train_dataset=data).train()
    folder = tmp_path / "checkpoint-1"
    ours = ckptdoctor.load(folder)
    assert_same(dict(sorted(ours["model"].items())), dict(sorted(load_file(folder / "model.safetensors").items())))
    assert_same(ours["optimizer"], torch.load(folder / "optimizer.pt"))
    model.save_pretrained(tmp_path / "shards", max_shard_size="2KB")
    shards = ckptdoctor.load(tmp_path / "shards")
    assert {key: bits(value) for key, value in shards.items()} == {
        key: bits(value) for key, value in model.state_dict().items()
    }


@real
def test_the_best_checkpoints_of_lightning(tmp_path):
    """Their scores are kept beside the weights, and are not called a network."""

    class Training(lightning.LightningModule):
        """One layer."""

        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))

        def training_step(self, batch, index):
            loss = self.net(batch[0]).sum()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    best = lightning.pytorch.callbacks.ModelCheckpoint(tmp_path, monitor="loss", save_last=True)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(accelerator="cpu", max_epochs=1, callbacks=[best], **quiet)
    trainer.fit(Training(), DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=4))
    path = Path(best.last_model_path)
    assert_same(ckptdoctor.load(path), torch.load(path, weights_only=True))
    (nested,) = [each for each in ckptdoctor.check(path).findings if each.code.startswith("W3")]
    assert nested.code == "W301" and nested.message == 'the weights are under "state_dict"'


def test_names_stay_apart_that_read_the_same(tmp_path):
    """None and "None" are two keys."""
    torch.save({None: torch.zeros(1), "None": torch.ones(1)}, tmp_path / "x.pt")
    assert [value.item() for value in ckptdoctor.load(tmp_path / "x.pt").values()] == [0, 1]
