"""Going on from a checkpoint: bit for bit, or with one sentence that says why not."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
import torch

from ckptdoctor.errors import DamagedError, UnreadableError, UsageError
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.snapshot import seeding
from ckptdoctor.trainer.snapshot.folders import Position
from ckptdoctor.trainer.snapshot.resume import copied, read, require_same_run, restore
from ckptdoctor.trainer.snapshot.save import save
from ckptdoctor.trainer.snapshot.training import KEYS
from ckptdoctor.trainer.team import Team
from tests.trainer.snapshot.toy import ALONE, Toy, train

HERE = Position(2, 3, 0.75)


def stopped(out, **choices):
    """A run after three steps and its checkpoint, from which three more steps were taken."""
    config = RunConfig(out=str(out), **choices)
    strategy = Toy(config)
    seeding.seed_everything(11)
    train(strategy, 3)
    random.gauss(0, 1)  # leaves a second number waiting in Python's generator
    folder = save(config, strategy, ALONE, HERE)
    losses = train(strategy, 3)
    return config, strategy, folder, [*losses, random.gauss(0, 1)]


def everything(strategy):
    """All tensors and numbers of a run, to be compared."""
    parts = [strategy.state_dict(), strategy.optimizer_state_dict(), strategy.ema_state_dict()]
    return str([[*_flat(part)] for part in parts]), strategy.scaler and strategy.scaler.state_dict()


def _flat(value):
    if isinstance(value, torch.Tensor):
        yield value.numpy().tobytes()
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _flat(each)
    elif isinstance(value, list):
        for each in value:
            yield from _flat(each)
    else:
        yield value


@pytest.mark.parametrize("tag", [None, "cuda:1", "xla:0"])
@pytest.mark.parametrize(
    "choices", [{"optimizer": "sgd"}, {"optimizer": "adamw", "ema": True}, {"amp": "fp16", "ema": True}]
)
def test_bitwise(tmp_path, choices, tag):
    """Stopped and resumed is the same, bit for bit, as never stopped, down to the numbers that are drawn."""
    config, strategy, folder, losses = stopped(tmp_path, tag_device=tag, **choices)
    seeding.seed_everything(404)
    resumed = Toy(config)
    train(resumed, 5)
    assert restore(read(folder), resumed, ALONE, config) == HERE
    assert [*train(resumed, 3), random.gauss(0, 1)] == losses
    assert everything(resumed) == everything(strategy)


def test_strategy_and_world_size_may_differ(tmp_path):
    """Another strategy on another number of ranks goes on from the same place; a new rank draws its own numbers."""
    config, *_, folder, _ = stopped(tmp_path)
    other = replace(config, strategy="ddp", world_size=2, epochs=20, lr=0.5, every=3)
    first, second = (Team(torch.device("cpu"), rank=rank, world_size=2) for rank in (0, 1))
    drawn = []
    for team in (first, second):
        strategy = Toy(other, team)
        assert restore(read(folder), strategy, team, other) == HERE
        assert torch.equal(strategy.state_dict()["fc.weight"], torch.load(folder / "model.pt")["fc.weight"])
        drawn.append(torch.rand(3).tolist())
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(
    ("name", "now", "sentence"),
    [
        ("network", "vgg", "was made with network lenet, and this run has vgg"),
        ("data", "cifar10", "was made with --data shapes, and this run has cifar10"),
        ("dtype", "float64", "was made with --dtype float32"),
        ("batch_size", 32, "was made with --batch-size 64, and this run has 32: continue with 64, or start another"),
        ("seed", 1, "--seed 0"),
        ("width", 8, "--width None"),
        ("images", 100, "--images None"),
        ("optimizer", "adamw", "--optimizer sgd"),
    ],
)
def test_another_run(tmp_path, name, now, sentence):
    """A checkpoint of a run that differs in what matters is refused before anything is loaded."""
    config, strategy, folder, _ = stopped(tmp_path)
    before = everything(strategy)
    with pytest.raises(UsageError) as raised:
        restore(read(folder), strategy, ALONE, replace(config, **{name: now}))
    assert sentence in raised.value.message
    assert everything(strategy) == before
    require_same_run(read(folder), config)


@pytest.mark.parametrize("at", [0.0, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("how", ["cut", "flip"])
def test_damage(tmp_path, at, how):
    """A file that was cut short, or in which one bit was flipped, is said to be damaged, with what to do."""
    *_, folder, _ = stopped(tmp_path)
    path = folder / "training.pt"
    data = bytearray(path.read_bytes())
    place = int(at * len(data))
    if how == "cut":
        del data[place:]
    else:
        data[place] ^= 4
    path.write_bytes(data)
    with pytest.raises(DamagedError) as raised:
        read(folder)
    assert str(folder) in raised.value.message
    assert raised.value.message.endswith("Remove that folder to resume from the previous checkpoint.")


def test_damaged_truth(tmp_path):
    """Without a checksum to hold it against, the file is not trusted."""
    *_, folder, _ = stopped(tmp_path)
    for text in ("", "[]", "{}", json.dumps({"files": {"training.pt": None}})):
        (folder / "truth.json").write_text(text)
        with pytest.raises(DamagedError, match="Remove that folder"):
            read(folder)


def test_something_else_with_the_right_checksum(tmp_path):
    """A file that is whole but lacks what a run needs is refused as well."""
    *_, folder, _ = stopped(tmp_path)
    for contents in ([1], dict.fromkeys(KEYS[1:], 1)):
        torch.save(contents, folder / "training.pt")
        note_checksum(folder)
        with pytest.raises(DamagedError, match=r"training\.pt has unexpected contents"):
            read(folder)
    (folder / "training.pt").write_bytes(b"no checkpoint at all")
    note_checksum(folder)
    with pytest.raises(DamagedError, match="Remove that folder"):
        read(folder)


def note_checksum(folder):
    """Make the truth agree with training.pt."""
    from ckptdoctor.trainer.snapshot.truth import sha256_of

    truth = json.loads((folder / "truth.json").read_text())
    truth["files"]["training.pt"]["sha256"] = sha256_of(folder / "training.pt")
    (folder / "truth.json").write_text(json.dumps(truth))


def test_nothing_there(tmp_path):
    """A folder that is gone cannot be read, and the sentence says so."""
    with pytest.raises(UnreadableError, match="cannot be read"):
        read(tmp_path / "epoch-0001")


def test_the_folder_may_go_while_training(tmp_path):
    """What was restored does not live in the file: it may be overwritten and removed."""
    config, strategy, folder, losses = stopped(tmp_path)
    resumed = Toy(config)
    restore(read(folder), resumed, ALONE, config)
    path = folder / "training.pt"
    path.write_bytes(bytes(path.stat().st_size))
    path.unlink()
    assert [*train(resumed, 3), random.gauss(0, 1)] == losses
    assert everything(resumed) == everything(strategy)


def test_another_precision(tmp_path):
    """A scaler that was not there begins anew, and one that is no longer needed is left out."""
    config, *_, folder, _ = stopped(tmp_path)
    scaled = Toy(replace(config, amp="fp16"))
    restore(read(folder), scaled, ALONE, replace(config, amp="fp16"))
    assert scaled.scaler.get_scale() == 1024.0
    config, *_, folder, _ = stopped(tmp_path, amp="fp16", ema=True)
    plain = replace(config, amp="no", ema=False)
    assert restore(read(folder), Toy(plain), ALONE, plain).epoch == 2


def test_copied():
    """Copies keep the shape of the data and share no memory."""
    tensor = torch.ones(2)
    value = {"a": [tensor, (1, 2)], 3: {"b": tensor}, "c": None}
    made = copied(value)
    assert str(made) == str(value)
    assert made["a"][0].data_ptr() != tensor.data_ptr() != made[3]["b"].data_ptr()
