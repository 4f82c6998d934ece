"""A run from its configuration to its last checkpoint, on as many processes as it takes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ckptdoctor.errors import UsageError
from ckptdoctor.trainer.checks import require_choices, require_styles
from ckptdoctor.trainer.config import PROCESSES, RunConfig
from ckptdoctor.trainer.data.load import load
from ckptdoctor.trainer.devices import require_world_size
from ckptdoctor.trainer.launch.launcher import launch
from ckptdoctor.trainer.launch.stopping import StopRequest
from ckptdoctor.trainer.launch.variables import RankPlace, place
from ckptdoctor.trainer.launch.world import join
from ckptdoctor.trainer.loop import Run, train
from ckptdoctor.trainer.networks import build
from ckptdoctor.trainer.progress.page import PAGE, is_page
from ckptdoctor.trainer.progress.report import listener
from ckptdoctor.trainer.snapshot.folders import Position, in_the_way, newest, position_of, sweep
from ckptdoctor.trainer.snapshot.resume import read, require_same_run, restore
from ckptdoctor.trainer.snapshot.seeding import seed_everything
from ckptdoctor.trainer.team import Team


def start(config: RunConfig, environ: Mapping[str, str] = os.environ) -> None:
    """Carry out a run: in this process, in processes of our own, or as one of those that torchrun or Slurm started.

    Raises UsageError, TrainingError or WriteError with one sentence.
    """
    where = place(environ)
    nodes = 1 if where is None else where.world_size // where.local_world_size
    require_world_size(config.strategy, config.device, config.world_size, nodes=nodes)
    require_choices(config)
    require_styles(config)
    if where is None or where.rank == 0:
        _prepare(config)
    if where is None and config.strategy in PROCESSES:
        launch(config)
    else:
        _here(config, where)


def _here(config: RunConfig, where: RankPlace | None) -> None:
    with StopRequest().installed() as stop, join(where, config) as team:
        work(config, team, stop)


def work(config: RunConfig, team: Team, stop: StopRequest) -> None:
    """Train, as every process of a run does."""
    # here: it brings FSDP, which takes a second to import, and a process that only launches others needs none of it
    from ckptdoctor.trainer.strategies.make import make

    dataset = load(config)
    with listener(config, team.is_first) as tell:
        model = build(config, dataset.shape, len(dataset.classes))
        seed_everything(config.seed, team.rank)  # after the weights, which are the same everywhere
        strategy = make(config, team, model)
        position = Position()
        if config.resume:
            position = restore(read(_to_resume(config)), strategy, team, config)
        train(Run(config, team, dataset, strategy, tell, stop), position)


def _prepare(config: RunConfig) -> None:
    """Clear the output folder and refuse one that does not fit, once and before any process starts."""
    out, begun = Path(config.out), Position()
    if os.path.lexists(out) and not out.is_dir():
        raise UsageError(f"{config.out} is not a folder: name another --out")
    sweep(out)
    if config.resume:
        last = _to_resume(config)
        require_same_run(read(last), config)
        begun = position_of(last.name) or begun
    elif (found := newest(out)) is not None:
        raise UsageError(
            f"{config.out} already holds a run ({found.name}): add --resume to continue it, or name another --out"
        )
    other = in_the_way(out, begun)
    if other is not None:
        raise UsageError(
            f"{other} is not a complete checkpoint, but has the name of one that this run will save: move it away, or "
            "name another --out"
        )
    page = out / PAGE
    if page.exists() and not is_page(page):
        raise UsageError(f"{page} is not a page of curves of a run: move it away, or name another --out")


def _to_resume(config: RunConfig) -> Path:
    found = newest(Path(config.out))
    if found is None:
        raise UsageError(f"{config.out} has no complete checkpoint to resume from: leave out --resume")
    return found
