"""Joining the processes of a run into one world, and leaving it together.

The ranks meet in a store, a small shared dictionary: a file when all are on one machine, a server in rank 0 (or in
torchrun) when they are not. Through it they exchange addresses, and from then on they talk directly, in groups: one
carries the gradients (NCCL between GPUs, gloo between CPUs), a second one, always gloo, carries control.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from urllib.parse import unquote, urlsplit

import torch
from torch import distributed
from torch.distributed import FileStore, PrefixStore, Store  # type: ignore[attr-defined]  # missing in its __all__
from torch.distributed.rendezvous import rendezvous

from ckptdoctor.errors import TrainingError, UsageError
from ckptdoctor.noun import replace
from ckptdoctor.trainer import devices
from ckptdoctor.trainer.config import PROCESSES, RunConfig
from ckptdoctor.trainer.launch.contact import LostContactError, is_lost_contact, lost_contact, wait_for_all
from ckptdoctor.trainer.launch.positions import current_position
from ckptdoctor.trainer.launch.reports import JOINING, patience
from ckptdoctor.trainer.launch.variables import RankPlace
from ckptdoctor.trainer.team import Team

_BACKENDS = {"cpu": "gloo", "cuda": "nccl", "xla": "xla"}


@contextmanager
def join(place: RankPlace | None, config: RunConfig) -> Iterator[Team]:
    """Join the team of this process, for as long as the run lasts. ``place`` None: a world of one, with no group.

    Ends together: leaving waits for the others. After a failure nobody is waited for; the system closes what is open.
    Raises UsageError when the place does not fit the run, and LostContactError when another rank dies or falls silent.
    """
    _check(place, config)
    with _threads(place, config):
        team = _alone(place, config)
        if place is None or config.strategy not in PROCESSES:
            yield team
            return
        store: Store | None = None
        try:
            store = _meet(place, config)
            yield replace(team, control=_form_groups(store, place, config))
            _leave(store, place, config)
        except LostContactError:
            raise
        except Exception as error:
            if not is_lost_contact(error):
                raise
            waited = patience(config, current_position())
            raise lost_contact(error, place, store, waited, current_position()) from error


def _check(place: RankPlace | None, config: RunConfig) -> None:
    if place is None:
        return
    if config.strategy not in PROCESSES and place.world_size > 1:
        raise UsageError(
            f"--strategy {config.strategy} is one process, but {place.world_size} were started: start one, or use ddp."
        )
    if config.strategy in PROCESSES and config.world_size != place.world_size:
        raise UsageError(
            f"the run is for {config.world_size} processes, but {place.world_size} were started: use "
            f"--world-size {place.world_size}, or start {config.world_size}."
        )


def _alone(place: RankPlace | None, config: RunConfig) -> Team:
    """Return this process alone with its device, before it knows the others."""
    index = _index(place.local_rank if place else 0, config.device)
    device = devices.device(config.device, index)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # or everything that names no index, NCCL included, ends up on cuda:0
        _settle_kernels(config)
    if place is None or config.strategy not in PROCESSES:
        return Team(device)
    return Team(device, place.rank, place.local_rank, place.world_size)


def _settle_kernels(config: RunConfig) -> None:
    """Let cuDNN try its convolutions and keep the fastest; for the same bits every time, only ever the same ones."""
    exact = config.strategy == "exact"
    torch.backends.cudnn.benchmark = not exact
    if exact:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what torch.use_deterministic_algorithms asks for
        torch.use_deterministic_algorithms(True)


def _index(local_rank: int, kind: str) -> int:
    """Return the number of this process's own device among those that it sees."""
    available = devices.count(kind)
    if available is None or local_rank < available:
        return local_rank
    if available == 1 and "SLURM_STEP_ID" in os.environ:  # srun --gpus-per-task shows each task its own device only
        return 0
    raise TrainingError(
        f"local rank {local_rank} needs its own device, but this machine has {available} of type {kind}: "
        "start fewer processes on it, or train on the CPU with --device cpu."
    )


def _meet(place: RankPlace, config: RunConfig) -> Store:
    """Return the store that all ranks have come to."""
    wait = max(config.timeout, JOINING)
    try:
        store = _store(place, wait)
    except RuntimeError as error:
        if "EADDRINUSE" in str(error):
            raise TrainingError("MASTER_PORT is already in use on this machine: choose another one.") from error
        raise
    # here, and not in the group: a rank may need long to start, but once it trains the timeout counts
    wait_for_all(store, "arrived", place, wait)
    store.set_timeout(timedelta(seconds=config.timeout))
    return store


def _store(place: RankPlace, wait: float) -> Store:
    if place.alone_on_machine:
        found: Store = FileStore(unquote(urlsplit(place.rendezvous).path), place.world_size)
        found.set_timeout(timedelta(seconds=wait))
    else:
        meeting = rendezvous(place.rendezvous, place.rank, place.world_size, timeout=timedelta(seconds=wait))
        found, _, _ = next(meeting)
    return PrefixStore("ckptdoctor", found)


def _form_groups(store: Store, place: RankPlace, config: RunConfig) -> distributed.ProcessGroup:
    """Start the group that carries gradients, which becomes torch's default one; returns the one for control.

    Every group has a timeout: without one, a rank that hangs is waited for until the end of days.
    """
    if place.alone_on_machine and "GLOO_SOCKET_IFNAME" not in os.environ:
        _stay_on_loopback()
    if config.device not in _BACKENDS:
        raise UsageError(f"--strategy {config.strategy} cannot reduce gradients on {config.device}: use single.")
    if config.device == "xla":
        import_module("torch_xla.distributed.xla_backend")  # registers the backend
    timeout = timedelta(seconds=config.timeout)
    distributed.init_process_group(
        _BACKENDS[config.device], store=store, rank=place.rank, world_size=place.world_size, timeout=timeout
    )
    # apart from the gradients on gloo too: DDP reduces in the background, and messages must not mix
    control = distributed.new_group(backend="gloo", timeout=timeout)
    assert isinstance(control, distributed.ProcessGroup)
    return control


def _stay_on_loopback() -> None:
    """Let gloo listen on this machine only: it would look up the host's name, which not every machine knows."""
    for _, name in socket.if_nameindex():
        if name in ("lo", "lo0"):  # Linux, macOS
            os.environ["GLOO_SOCKET_IFNAME"] = name


def _leave(store: Store, place: RankPlace, config: RunConfig) -> None:
    """Take the groups down when nobody needs them any more.

    A rank whose last collective is done may still be the one that another rank's last collective reads from: closing
    the connection then looks like a crash to that rank. So all say that they are done before anyone closes anything,
    and rank 0, which may keep the store, goes last.
    """
    wait_for_all(store, "done", place, config.timeout)
    distributed.destroy_process_group()
    store.set(f"left/{place.rank}", "")
    if place.rank == 0:
        wait_for_all(store, "left", place, config.timeout)


@contextmanager
def _threads(place: RankPlace | None, config: RunConfig) -> Iterator[None]:
    """Share the cores of this machine among the ranks on it.

    torch takes every core for each process. Two ranks on two cores would run four threads, which wait for each other
    more than they compute. ``exact`` uses one thread always: how many threads share a sum decides its last bits.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1 if config.strategy == "exact" else _share_of_cores(place))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _share_of_cores(place: RankPlace | None) -> int:
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)  # somebody has settled it; torchrun does, when it starts several processes
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    own = os.environ.get("SLURM_CPUS_PER_TASK", "")
    if place is not None and "SLURM_STEP_ID" in os.environ and own.isdecimal():
        return max(1, min(cores, int(own)))  # Slurm has shared them out, and binds each task to its own
    return max(1, cores // (place.local_world_size if place else 1))
