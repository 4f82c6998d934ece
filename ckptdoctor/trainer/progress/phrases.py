"""A run in plain words, the same for a terminal and for a log."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import groupby

from ckptdoctor.shell import quote
from ckptdoctor.trainer.config import PROCESSES, RunConfig
from ckptdoctor.trainer.events import Ended, EpochDone, Saved, Started, StepDone
from ckptdoctor.trainer.progress.page import PAGE
from ckptdoctor.trainer.progress.story import Story
from ckptdoctor.trainer.progress.text import percent_of
from ckptdoctor.wording import plural

_HANDFUL = 4
"""So many replicas are named one by one."""

LabelledRows = list[tuple[str, str]]
"""Labels, and what they say."""


def header(started: Started) -> LabelledRows:
    """Return the choices of the run: network, strategy, devices, data, batch, epochs."""
    config = started.config
    images = f"{config.data}: {plural(started.train_images, 'image')} to train, {started.test_images:,} to test"
    rows = [
        ("network", f"{config.network}, {plural(started.parameters, 'parameter')}"),
        ("strategy", _strategy(started)),
        ("data", images),
        ("batch", _batch(config)),
        ("epochs", f"{config.epochs:,} of {plural(started.steps, 'step')}; {_pace(config)}"),
    ]
    extras = _extras(config)
    if extras:
        rows.append(("with", extras))
    if config.amp == "fp16" and config.device == "cpu":
        rows.append(("note", "most CPUs cannot compute in float16: --amp bf16 is many times as fast on them"))
    if started.epoch:
        rows.append(("resumed", f"after epoch {started.epoch:,}"))
    return rows


def devices(names: Sequence[str]) -> str:
    """Return ``cuda:0, cuda:1``; ``cuda:0 … cuda:63`` for more than a handful; ``cpu`` when all are the same."""
    if len(set(names)) == 1:
        return names[0]
    return ", ".join(names) if len(names) <= _HANDFUL else f"{names[0]} … {names[-1]}"


def batches(sizes: Sequence[int], names: Sequence[str]) -> str:
    """Return ``8 + 8 images a step on cuda:0, cuda:1``; ``8 × 64 images a step on …`` for more than a handful."""
    if len(sizes) <= _HANDFUL:
        numbers = " + ".join(f"{size:,}" for size in sizes)
    else:
        numbers = " + ".join(_times(size, len(list(run))) for size, run in groupby(sizes))
    return f"{numbers} images a step on {devices(names)}"


def replicas(step: StepDone, names: Sequence[str]) -> list[str]:
    """Return one line a replica, saying what it sees: ``replica 0 on cuda:0: batch of 8``."""
    pairs = zip(names, step.replica_batches, strict=True)
    return [f"replica {index} on {name}: batch of {size}" for index, (name, size) in enumerate(pairs)]


def epoch(event: EpochDone, config: RunConfig) -> str:
    """Return all that is known of an epoch, in one line that can be found with grep."""
    parts = [
        f"train loss {event.train_loss:.4f}, accuracy {percent_of(event.train_accuracy)}",
        f"test loss {event.test_loss:.4f}, accuracy {percent_of(event.test_accuracy)}",
        *([f"EMA accuracy {percent_of(event.ema_accuracy)}"] if event.ema_accuracy is not None else []),
        f"{event.images_per_second:,.0f} images/s",
        f"{event.seconds:.1f} s",
        f"lr {event.learning_rate:.4g}",
    ]
    return f"epoch {event.epoch}/{config.epochs}: {'; '.join(parts)}"


def checkpoint(event: Saved) -> str:
    """Return ``checkpoint run/epoch-0003: model.pt, training.pt``."""
    return f"checkpoint {event.path}: {', '.join(event.files)}"


def end(event: Ended, story: Story) -> tuple[str, LabelledRows]:
    """Return the result that was reached, and what to do next."""
    config = story.started.config
    if event.interrupted is None:
        headline = f"Done: {plural(event.epochs, 'epoch')}"
    else:
        headline = f"Stopped after {event.epochs:,} of {plural(config.epochs, 'epoch')}: {event.interrupted}"
    return headline, list(_ending(event, story))


def _ending(event: Ended, story: Story) -> Iterator[tuple[str, str]]:
    config = story.started.config
    accuracy = [] if event.test_accuracy is None else [percent_of(event.test_accuracy)]
    if story.best is not None:
        number, best = story.best
        accuracy.append(f"best {percent_of(best)} after epoch {number:,}")
    if accuracy:
        yield "accuracy", ", ".join(accuracy)
    if story.seconds:
        mean = sum(story.seconds) / len(story.seconds)
        yield "time", f"mean {mean:.{1 if mean >= 1 else 3}f} s an epoch on {devices(story.started.devices)}"
    if not story.saved:
        yield "checkpoints", "none was written" + (": start again" if event.interrupted is not None else "")
        return
    yield "checkpoints", story.saved[-1] + (f" and {len(story.saved) - 1:,} before it" if story.saved[1:] else "")
    if story.epochs:
        yield "curves", os.path.join(config.out, PAGE)
    yield "check it", f"ckptdoctor check {quote(story.saved[-1])}"
    if event.interrupted is not None:
        yield "continue", "the same command with --resume"


def _strategy(started: Started) -> str:
    config = started.config
    where = devices(started.devices)
    if config.world_size == 1:
        return f"{config.strategy} on {where}"
    if config.strategy in PROCESSES:
        return f"{config.strategy}, {config.world_size:,} processes on {where}"
    return f"{config.strategy}, {config.world_size:,} replicas in one process on {where}"


def _batch(config: RunConfig) -> str:
    images = plural(config.batch_size, "image")
    return images if config.world_size == 1 else f"{images}: {config.batch_size // config.world_size:,} a replica"


def _pace(config: RunConfig) -> str:
    """Return ``sgd, lr 0.05``; the usual schedule is not worth a word."""
    constant = " constant" if config.schedule == "constant" else ""
    return f"{config.optimizer}, lr {config.lr:g}{constant}"


def _extras(config: RunConfig) -> str:
    """Return the choices that are worth a word because they are not the usual ones."""
    words = [
        f"{config.amp} autocast" if config.amp != "no" else "",
        "torch.compile" if config.compile else "",
        "averaged weights (EMA)" if config.ema else "",
        "pinned memory" if config.pin_memory else "",
        plural(config.workers, "loading worker") if config.workers else "",
    ]
    return ", ".join(filter(None, words))


def _times(size: int, count: int) -> str:
    return f"{size:,} × {count:,}" if count > 1 else f"{size:,}"
