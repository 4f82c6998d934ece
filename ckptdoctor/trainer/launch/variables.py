"""The place of this process among those of a run, read from what its starter left in the environment.

Three ways of starting a run are understood, and each tells a process four numbers and a place to meet:

============== ======================= ============== =======================================
what           torchrun                Slurm (srun)   the built-in launcher
============== ======================= ============== =======================================
rank           RANK                    SLURM_PROCID   CKPTDOCTOR_RANK
world size     WORLD_SIZE              SLURM_NTASKS   CKPTDOCTOR_WORLD_SIZE
rank here      LOCAL_RANK              SLURM_LOCALID  the rank: there is one machine
ranks here     LOCAL_WORLD_SIZE        see below      the world size
meeting place  MASTER_ADDR, _PORT      the same       CKPTDOCTOR_RENDEZVOUS, a file
============== ======================= ============== =======================================

Sources: https://docs.pytorch.org/docs/stable/elastic/run.html ("Environment Variables") and the manual page srun(1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ckptdoctor.errors import UsageError

Environ = Mapping[str, str]


@dataclass(frozen=True)
class RankPlace:
    """One process among those of a run: its rank, of how many, in the world and on this machine."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    rendezvous: str
    """Where the ranks meet: "env://" or "tcp://host:port", or "file:///path" when all are on this machine."""

    @property
    def alone_on_machine(self) -> bool:
        """Whether the world is on this machine alone, under the eyes of the built-in launcher."""
        return self.rendezvous.startswith("file://")


def place(environ: Environ) -> RankPlace | None:
    """Return the place of this process, or None when it was started by hand, and no others with it.

    Raises UsageError, which names the variable, when the variables contradict each other.
    """
    if "CKPTDOCTOR_RENDEZVOUS" in environ:
        return _of_launcher(environ)
    if "RANK" in environ or "WORLD_SIZE" in environ:
        return _of_torchrun(environ)
    return _of_slurm(environ)


def _of_launcher(environ: Environ) -> RankPlace:
    rank, size = _rank_and_size(environ, "CKPTDOCTOR_RANK", "CKPTDOCTOR_WORLD_SIZE")
    return RankPlace(rank, rank, size, size, environ["CKPTDOCTOR_RENDEZVOUS"])


def _of_torchrun(environ: Environ) -> RankPlace:
    rank, size = _rank_and_size(environ, "RANK", "WORLD_SIZE")
    local_rank, local_size = _rank_and_size(environ, "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if local_size > size:
        raise UsageError(f"LOCAL_WORLD_SIZE is {local_size}, more than the WORLD_SIZE of {size}; start with torchrun.")
    _meeting_point(environ)
    return RankPlace(rank, local_rank, size, local_size, "env://")


def _of_slurm(environ: Environ) -> RankPlace | None:
    # a batch script itself has SLURM_PROCID=0 and SLURM_NTASKS=N: only what srun started belongs to a step
    if "SLURM_STEP_ID" not in environ or "SLURM_PROCID" not in environ:
        return None
    # of the step, which is one task in an interactive shell that salloc gave, however many tasks the job may have
    tasks = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS"
    if _number(environ, tasks) <= 1:
        return None
    rank, size = _rank_and_size(environ, "SLURM_PROCID", tasks)
    host, port = _meeting_point(environ)
    local_rank, local_size = _number(environ, "SLURM_LOCALID"), _tasks_on_this_node(environ, size)
    if local_rank >= local_size:
        raise UsageError(
            f"SLURM_LOCALID is {local_rank}, but only {local_size} tasks are on this node: start with srun."
        )
    return RankPlace(rank, local_rank, size, local_size, f"tcp://{host}:{port}")


def _tasks_on_this_node(environ: Environ, size: int) -> int:
    """Read "4(x2),3": four tasks on each of the first two nodes, three on the last."""
    text = environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    counts = [int(tasks) for tasks, times in groups for _ in range(int(times or 1))]
    node = _number(environ, "SLURM_NODEID") if "SLURM_NODEID" in environ else 0
    if counts and node >= len(counts):
        raise UsageError(f"SLURM_NODEID is {node}, but SLURM_STEP_TASKS_PER_NODE is {text!r}: start with srun.")
    if counts:
        return counts[node]
    # what was asked for, which a node may have been given less of
    return min(size, _number(environ, "SLURM_NTASKS_PER_NODE")) if "SLURM_NTASKS_PER_NODE" in environ else size


def _meeting_point(environ: Environ) -> tuple[str, int]:
    """Return the host and port where rank 0 listens. Slurm does not choose them: the batch script does."""
    host = environ.get("MASTER_ADDR")
    if not host:
        raise UsageError(
            "MASTER_ADDR is not set, so the processes cannot find each other: set it to the name of the first node, "
            "and MASTER_PORT to a free port (--slurm prints a script that does)."
        )
    return f"[{host}]" if ":" in host else host, _number(environ, "MASTER_PORT")


def _rank_and_size(environ: Environ, rank_name: str, size_name: str) -> tuple[int, int]:
    rank, size = _number(environ, rank_name), _number(environ, size_name)
    if rank >= size:
        raise UsageError(f"{rank_name} is {rank}, but {size_name} is {size}: ranks count from 0 to {size_name} - 1.")
    return rank, size


def _number(environ: Environ, name: str) -> int:
    text = environ.get(name)
    if text is None:
        raise UsageError(f"{name} is not set, but its companions are: start with torchrun or srun, or unset them all.")
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise UsageError(f"{name} is {text!r}, which is not a number: start with torchrun or srun, or unset it.")
    return int(text)
