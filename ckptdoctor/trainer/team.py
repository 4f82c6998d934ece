"""The processes that train together, as one of them sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import distributed

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@dataclass(frozen=True)
class Team:
    """The rank of this process, the number of ranks, and the device on which it computes.

    ``control`` is a gloo group beside the one that carries gradients: small decisions are made on the CPU, so that no
    GPU has to be waited for. It is None where there is no process group: a world of one process.
    """

    device: torch.device
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    control: ProcessGroup | None = None

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that writes and speaks."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until every rank is here."""
        if self.control is not None:
            distributed.barrier(group=self.control)

    def any(self, flag: bool) -> bool:
        """Return whether ``flag`` is true on at least one rank; the same answer on each."""
        return bool(self.sum(torch.tensor([float(flag)], dtype=torch.float64)).item() > 0)

    def asking(self, flag: Callable[[], bool]) -> Callable[[], bool]:
        """Ask ``any`` in two halves: the question goes out now, and the answer is awaited when the result is called.

        What a rank computes in between does not have to wait for messages between processes. A process that is alone
        asks itself, when it wants to know.
        """
        if self.control is None or self.world_size == 1:
            return flag
        answer = torch.tensor([float(flag())])
        work = distributed.all_reduce(answer, group=self.control, async_op=True)

        def wait() -> bool:
            work.wait()
            return bool(answer.item() > 0)

        return wait

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum over all ranks of a CPU tensor, which is changed in place and returned."""
        if self.control is not None:
            distributed.all_reduce(values, group=self.control)
        return values

    def gather(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Return CPU tensors of one shape and dtype, one of each rank, in the order of the ranks."""
        if self.control is None:
            return [values]
        parts = [torch.empty_like(values) for _ in range(self.world_size)]
        distributed.all_gather(parts, values, group=self.control)
        return parts
