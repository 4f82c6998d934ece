"""Training against a bare torch loop that does the same work: ``python benchmarks/train.py``.

The bare loop is what people write: prepared tensors, a shuffled order, forward, cross entropy, backward, step, and the
running loss and accuracy that everybody prints. Both loops train the same network on the same batches in the same
process, by turns; the figures are medians over the rounds, and ratios come from one run.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.data.dataset import prepared
from ckptdoctor.trainer.data.load import load
from ckptdoctor.trainer.launch.launcher import launch
from ckptdoctor.trainer.launch.stopping import StopRequest
from ckptdoctor.trainer.loop import Meter, Run, train_epoch
from ckptdoctor.trainer.networks import build
from ckptdoctor.trainer.snapshot.folders import Position
from ckptdoctor.trainer.strategies.make import make
from ckptdoctor.trainer.team import Team

ROUNDS = 7
IMAGES = 8192


def bare_loop(model, optimizer, inputs, labels, order, batch_size, team):
    """An epoch as people write it; this rank's part of every batch."""
    share = batch_size // team.world_size
    model.train()
    total, correct = 0.0, 0
    for start in range(0, len(order) - batch_size + 1, batch_size):
        chosen = order[start + team.rank * share : start + (team.rank + 1) * share]
        x, y = inputs[chosen], labels[chosen]
        optimizer.zero_grad()
        logits = model(x)
        loss = cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
        correct += (logits.argmax(1) == y).sum().item()
    return total, correct


def rounds(config: RunConfig, team: Team, stop: StopRequest) -> None:
    """Both loops by turns; the first rank writes the seconds of each."""
    dataset = load(config)
    strategy = make(config, team, build(config, dataset.shape, 10))
    run = Run(config, team, dataset, strategy, lambda event: None, stop)
    model = build(config, dataset.shape, 10)
    wrapped = DistributedDataParallel(model) if config.strategy == "ddp" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=config.momentum)
    inputs = prepared(dataset.train.inputs, dataset, torch.float32)
    seconds: dict[str, list[float]] = {"ours": [], "bare": []}
    for number in range(ROUNDS + 1):
        team.barrier()
        start = time.perf_counter()
        train_epoch(run, Position(number), Meter())
        seconds["ours"].append(time.perf_counter() - start)
        team.barrier()
        start = time.perf_counter()
        bare_loop(
            wrapped, optimizer, inputs, dataset.train.labels, run.sampler.permutation(number), config.batch_size, team
        )
        seconds["bare"].append(time.perf_counter() - start)
    if team.is_first:
        for name, values in seconds.items():  # the first round warms up
            (Path(config.out) / name).write_text(repr(values[1:]))


def measured(config: RunConfig) -> tuple[float, float, float]:
    """Images/s of ours, of the bare loop, and the median of their ratios round by round."""
    with tempfile.TemporaryDirectory() as out:
        launch(replace(config, out=out), target="benchmarks.train:rounds")
        ours, bare = (eval((Path(out) / name).read_text()) for name in ("ours", "bare"))
    images = config.images - config.images % config.batch_size
    ratio = statistics.median(b / o for o, b in zip(ours, bare, strict=True))
    return images / statistics.median(ours), images / statistics.median(bare), ratio


def main() -> None:
    """Measure ``single``, and ``ddp`` on 1 and 2 ranks; every process has one thread, so that ranks are what scales."""
    os.environ["OMP_NUM_THREADS"] = "1"
    base = RunConfig(network="lenet", images=IMAGES, batch_size=int(sys.argv[1]) if len(sys.argv) > 1 else 256)
    speed = {}
    for strategy, world_size in (("single", 1), ("ddp", 1), ("ddp", 2)):
        ours, bare, ratio = measured(replace(base, strategy=strategy, world_size=world_size))
        speed[strategy, world_size] = ours
        name = f"{strategy} on {world_size}"
        print(f"{name:12} {ours:8,.0f} images/s   bare loop {bare:8,.0f}   ratio {ratio:.2f}", flush=True)
    print(f"ddp from 1 to 2 ranks: {speed['ddp', 2] / speed['ddp', 1]:.2f} times the speed")


if __name__ == "__main__":
    main()
