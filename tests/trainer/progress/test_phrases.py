"""A run in plain words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ckptdoctor.trainer.events import Ended, StepDone
from ckptdoctor.trainer.progress import phrases
from ckptdoctor.trainer.progress.story import Story
from tests.trainer.progress.runs import FOONET, config, epoch_done, saved, started, step


@pytest.mark.parametrize(
    ("sizes", "names", "text"),
    [
        ((64,), ("cpu",), "64 images a step on cpu"),
        ((8, 8), ("cuda:0", "cuda:1"), "8 + 8 images a step on cuda:0, cuda:1"),
        ((8, 8), ("cpu", "cpu"), "8 + 8 images a step on cpu"),
        ((8,) * 64, tuple(f"cuda:{i}" for i in range(64)), "8 × 64 images a step on cuda:0 … cuda:63"),
        ((9, 8, 8, 8, 8, 8), ("cpu",) * 6, "9 + 8 × 5 images a step on cpu"),
        ((1024, 1024), ("mps", "mps"), "1,024 + 1,024 images a step on mps"),
    ],
)
def test_batches_are_told_one_by_one_up_to_a_handful(sizes, names, text):
    """A few replicas are added up, many are multiplied, and one device is named once."""
    assert phrases.batches(sizes, names) == text


def test_foonet_says_what_each_replica_sees():
    """A batch of 16 on two replicas is told as the tutorial tells it, one line each."""
    lines = phrases.replicas(step(FOONET, 1, 1), ("cpu", "cpu"))
    assert lines == ["replica 0 on cpu: batch of 8", "replica 1 on cpu: batch of 8"]


def test_more_batches_than_devices_are_a_mistake():
    """Replicas without a device are not left out silently."""
    with pytest.raises(ValueError, match="argument"):
        phrases.replicas(StepDone(1, 1, 1.0, 0.5, 10.0, (8, 8)), ("cpu",))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"strategy": "single", "world_size": 1, "device": "cpu"}, "single on cpu"),
        ({"strategy": "ddp"}, "ddp, 2 processes on cuda:0, cuda:1"),
        ({"strategy": "dp"}, "dp, 2 replicas in one process on cuda:0, cuda:1"),
        ({"strategy": "fsdp", "world_size": 8}, "fsdp, 8 processes on cuda:0 … cuda:7"),
        ({"strategy": "manual", "device": "cpu"}, "manual, 2 replicas in one process on cpu"),
    ],
)
def test_the_header_names_strategy_world_and_devices(changes, text):
    """Processes and replicas are told apart, because that is what the strategies differ in."""
    assert dict(phrases.header(started(config(**changes))))["strategy"] == text


def test_the_header_says_all_that_runs():
    """Network, parameters, data, batch per replica, epochs, what is special, and where a resumed run goes on."""
    special = config(amp="bf16", ema=True, compile=True, pin_memory=True, workers=2)
    assert dict(phrases.header(started(special, epoch=3))) == {
        "network": "lenet, 431,080 parameters",
        "strategy": "ddp, 2 processes on cuda:0, cuda:1",
        "data": "shapes: 5,120 images to train, 1,024 to test",
        "batch": "256 images: 128 a replica",
        "epochs": "4 of 20 steps; sgd, lr 0.05",
        "with": "bf16 autocast, torch.compile, averaged weights (EMA), pinned memory, 2 loading workers",
        "resumed": "after epoch 3",
    }


def test_the_header_keeps_quiet_about_what_is_usual():
    """A plain run has no line for extras, and no word of a replica when there is one."""
    rows = dict(phrases.header(started(config(strategy="single", world_size=1))))
    assert set(rows) == {"network", "strategy", "data", "batch", "epochs"}
    assert rows["batch"] == "256 images"


def test_the_header_says_what_is_not_the_usual_pace():
    """A constant learning rate is named, and float16 on a CPU is said to be slow there."""
    rows = dict(phrases.header(started(config(device="cpu", amp="fp16", schedule="constant"))))
    assert rows["epochs"] == "4 of 20 steps; sgd, lr 0.05 constant"
    assert rows["note"] == "most CPUs cannot compute in float16: --amp bf16 is many times as fast on them"


def test_an_epoch_is_one_line():
    """All figures are in it; the EMA accuracy only where there is one."""
    plain, averaged = config(), config(ema=True)
    text = (
        "epoch 2/4: train loss 0.7500, accuracy 63.5 %; test loss 0.8000, accuracy 65.0 %; "
        "3,814 images/s; 2.7 s; lr 0.05"
    )
    assert phrases.epoch(epoch_done(plain, 2), plain) == text
    assert "; EMA accuracy 66.0 %; " in phrases.epoch(epoch_done(averaged, 2), averaged)


def story(config, *epochs):
    """What is known after these epochs."""
    story = Story(started(config), 0.0)
    for number in epochs:
        story.epoch(epoch_done(config, number), 0.0)
        story.save(saved(number))
    return story


def test_the_end_says_what_to_do_next():
    """Accuracy, the best of all, the checkpoints, the curves, and the command that checks the last checkpoint."""
    known = story(config(), 1, 2, 3)
    known.epochs[2] = 0.9
    headline, rows = phrases.end(Ended(3, 0.7667), known)
    assert headline == "Done: 3 epochs"
    assert dict(rows) == {
        "accuracy": "76.7 %, best 90.0 % after epoch 2",
        "time": "mean 2.7 s an epoch on cuda:0, cuda:1",
        "checkpoints": "run/epoch-0003 and 2 before it",
        "curves": "run/curves.html",
        "check it": "ckptdoctor check run/epoch-0003",
    }


def test_an_interrupted_run_says_how_to_go_on():
    """What stopped it, and that --resume goes on."""
    headline, rows = phrases.end(Ended(1, None, "Ctrl-C"), story(config(), 1))
    assert headline == "Stopped after 1 of 4 epochs: Ctrl-C"
    assert dict(rows)["continue"] == "the same command with --resume"


def test_a_run_that_saved_nothing_promises_nothing():
    """Without a checkpoint there is nothing to check and nothing to go on from."""
    _, rows = phrases.end(Ended(0, None, "Ctrl-C"), Story(started(config()), 0.0))
    assert rows == [("checkpoints", "none was written: start again")]


def test_a_path_with_a_space_is_quoted():
    """The command can be copied into a shell whatever the folder is called."""
    known = Story(started(config()), 0.0)
    known.save(replace(saved(1), path="my run/epoch-0001"))
    assert dict(phrases.end(Ended(1, 0.5), known)[1])["check it"] == "ckptdoctor check 'my run/epoch-0001'"
