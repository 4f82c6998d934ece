"""Runs of the trainer that write the same bytes every time: what chance decides in them is decided here.

- One thread: how many share a sum decides its last bits.
- The distributed checkpoint carries a random number for each save; here it is always the same one.
- Python 3.13 writes another module for the classes of ``pathlib`` than those before and after it; here it does not.
- torch.compile only traces (``backend="eager"``). The wrapper, and with it every key, is what any backend leaves; the
  default one would call a C++ compiler for half a minute.

Which instructions the processor may use is settled before torch starts, in ``make.py``.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from unittest import mock

import torch

from ckptdoctor.trainer import run
from ckptdoctor.trainer.config import PROCESSES, RunConfig
from ckptdoctor.trainer.data.dataset import Dataset
from ckptdoctor.trainer.events import RunEvent
from ckptdoctor.trainer.launch.launcher import launch
from ckptdoctor.trainer.launch.stopping import StopRequest
from ckptdoctor.trainer.launch.world import join
from ckptdoctor.trainer.loop import Run
from ckptdoctor.trainer.loop import train as train_loop
from ckptdoctor.trainer.snapshot.folders import TRUTH, Position, newest
from ckptdoctor.trainer.snapshot.seeding import seed_everything
from ckptdoctor.trainer.strategies.strategy import Strategy
from ckptdoctor.trainer.team import Team

SAVE_ID = "00000000-0000-4000-8000-000000000000"
"""In place of a random UUID: ``StorageMeta.save_id`` in the ``.metadata`` of a distributed checkpoint."""


def train(config: RunConfig) -> Path:
    """What ``ckptdoctor train`` does, without a word; returns the checkpoint folder."""
    if config.strategy in PROCESSES:
        launch(config, target=f"{__name__}:work", environ=_with_this_module_in_reach())
    else:
        with join(None, config) as team:
            work(config, team, StopRequest())
    return _newest(config)


def work(config: RunConfig, team: Team, stop: StopRequest) -> None:
    """What every process of a run does."""
    with _settled(), redirect_stdout(io.StringIO()):
        run.work(config, team, stop)


def train_own(
    config: RunConfig,
    dataset: Dataset,
    strategy: Callable[[RunConfig, Team], Strategy],
    tell: Callable[[RunEvent, StopRequest], None] = lambda event, stop: None,
) -> Path:
    """The trainer's loop around a strategy of our own. ``tell`` hears what happens and may ask the run to stop."""
    stop = StopRequest()
    with join(None, config) as team, _settled():
        made = strategy(config, team)
        seed_everything(config.seed)
        train_loop(Run(config, team, dataset, made, lambda event: tell(event, stop), stop), Position())
    _say_how_it_was_made(_newest(config) / TRUTH)
    return _newest(config)


@contextmanager
def _settled() -> Iterator[None]:
    from torch.distributed.checkpoint import filesystem

    torch.set_num_threads(1)  # join, around this, puts back what was
    with ExitStack() as patches, naming_paths_alike():
        patches.enter_context(mock.patch.object(filesystem, "_generate_uuid", lambda: SAVE_ID))
        patches.enter_context(mock.patch.object(torch, "compile", partial(torch.compile, backend="eager")))
        yield


@contextmanager
def naming_paths_alike() -> Iterator[None]:
    """Let paths be pickled in this block as of ``pathlib``: in Python 3.13 they are of ``pathlib._local``."""
    with ExitStack() as patches:
        for kind in (pathlib.PosixPath, pathlib.PurePosixPath):
            patches.enter_context(mock.patch.object(kind, "__module__", "pathlib"))
        yield


def _with_this_module_in_reach() -> dict[str, str]:
    path = [str(Path(__file__).resolve().parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def _say_how_it_was_made(truth: Path) -> None:
    """The trainer notes the command of its own that would make such a run: here there is none."""
    told = json.loads(truth.read_text(encoding="utf-8"))
    told["made"]["command"] = "python sample_ckpts/make.py"
    truth.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _newest(config: RunConfig) -> Path:
    found = newest(Path(config.out))
    assert found is not None
    return found
