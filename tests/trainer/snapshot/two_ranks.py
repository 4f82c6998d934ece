"""Two ranks that save and resume together; test_save.py starts both."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from ckptdoctor.errors import WriteError
from ckptdoctor.trainer.config import RunConfig
from ckptdoctor.trainer.snapshot import folders, save, seeding
from ckptdoctor.trainer.snapshot.folders import Position
from ckptdoctor.trainer.snapshot.resume import read, restore
from ckptdoctor.trainer.team import Team
from tests.trainer.snapshot.toy import Toy


def full(*_):
    """A disk that is full."""
    raise OSError(28, "No space left on device")


def rank_main(rank: int, place: str) -> None:
    """What each rank does, and what it saw of it in ``rank-N.json``."""
    here = Path(place)
    torch.set_num_threads(1)
    timeout = timedelta(seconds=30)
    distributed.init_process_group("gloo", f"file://{place}/meet", timeout, 2, rank)
    team = Team(torch.device("cpu"), rank, rank, 2, distributed.new_group(backend="gloo", timeout=timeout))
    config = RunConfig(out=str(here / "run"), strategy="ddp", world_size=2, save=("plain", "wrapped", "dcp"))
    strategy = Toy(config, team, DistributedDataParallel, "module.")
    seeding.seed_everything(1, rank)
    folder = save.save(config, strategy, team, Position(1))
    drawn = [torch.rand(2).tolist(), random.random()]
    restore(read(folder), strategy, team, config)
    goes_on = [torch.rand(2).tolist(), random.random()] == drawn
    if rank == 0:
        save.truth.write = full
    try:
        failed = str(save.save(config, strategy, team, Position(2)))
    except WriteError as error:
        failed = error.message
    team.barrier()
    left = (
        [path.name for path in folders.complete_folders(here / "run")]
        if rank
        else sorted(p.name for p in (here / "run").iterdir())
    )
    seen = {"folder": str(folder), "drawn": drawn, "goes_on": goes_on, "failed": failed, "left": left}
    (here / f"rank-{rank}.json").write_text(json.dumps(seen))
    distributed.destroy_process_group()
