"""Examines batches as tasks of a Ray cluster, on whatever nodes it has.

The stores have to be reachable from every node under the same paths or addresses, and ckptdoctor has to be installed
there. A node that is lost takes the batches with it that it had; they are examined on others.
"""

from __future__ import annotations

import os
from time import monotonic
from typing import Any

from ckptdoctor.crash import installing
from ckptdoctor.errors import MissingPackageError, UsageError
from ckptdoctor.stores.engines.engine import Done
from ckptdoctor.stores.order import Batch

_UNIT, _PACE = 600.0, 10_000_000  # seconds that a unit may take, and bytes a second that are read of it at least


class RayEngine:
    """Tasks of a cluster: that at ``address`` ("auto": the one of this machine), for None that of RAY_ADDRESS.

    Where that is not set, it is a new one here.
    """

    def __init__(self, address: str | None = None, jobs: int | None = None) -> None:
        try:
            import ray
        except ModuleNotFoundError as error:
            raise MissingPackageError(
                f"--engine ray needs Ray, which is not installed: {installing()} 'ckptdoctor[ray]'"
            ) from error
        self._ray = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            try:
                # "local", for Ray joins any cluster that it finds here, and refuses to be told of processors then
                where = address or os.environ.get("RAY_ADDRESS") or "local"
                ray.init(address=where, num_cpus=jobs if where == "local" else None, log_to_driver=False)
            except (ConnectionError, ValueError) as error:
                raise UsageError(f"--engine: there is no Ray cluster at {where}: {error}") from error
        self._task = ray.remote(num_cpus=1, max_retries=0)(examined)
        self._jobs = jobs
        self._flying: dict[Any, tuple[int, float]] = {}  # with its number, and when it should be over

    @property
    def width(self) -> int:
        """Two batches for each processor: nodes may come and go."""
        return 2 * self.workers

    @property
    def workers(self) -> int:
        """One for each processor that the cluster has now."""
        return self._jobs or max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, number: int, batch: Batch) -> None:
        """Have a task examine it."""
        size = sum(file[2] for unit in batch.units for file in unit[3]) if batch.deep else 0
        pace = min(_PACE, batch.rate / 4) if batch.rate else _PACE  # some bytes are read more than once
        over = monotonic() + self.width * (_UNIT * len(batch.units) + size / pace)  # others may come first
        self._flying[self._task.remote(batch.units, batch.how, batch.rate)] = number, over

    def completed(self, seconds: float) -> list[Done]:
        """Return what tasks gave back, and the failure of those that are gone."""
        found = []
        ready, _ = self._ray.wait(list(self._flying), num_returns=len(self._flying), timeout=0)
        if not ready:
            ready, _ = self._ray.wait(list(self._flying), num_returns=1, timeout=seconds)
        for task in ready:
            number, _ = self._flying.pop(task)
            try:
                found.append(Done(number, tuple(self._ray.get(task)), over=True))
            except self._ray.exceptions.RayError as error:
                what = str(error).strip().partition("\n")[0]
                found.append(Done(number, over=True, failure=f"{type(error).__name__}: {what}"))
        for task, (number, over) in list(self._flying.items()):
            if monotonic() > over:
                del self._flying[task]
                self._ray.cancel(task, force=True)
                found.append(Done(number, over=True, failure="nothing was heard for too long"))
        return found

    def close(self) -> None:
        """End all tasks; a cluster that was here before goes on."""
        for task in self._flying:
            self._ray.cancel(task, force=True)
        self._flying.clear()
        if self._ours:
            self._ray.shutdown()


def examined(units: tuple[tuple[Any, ...], ...], how: tuple[Any, ...], rate: float) -> list[Any]:
    """Examine some units, wherever this runs."""
    from ckptdoctor.checkpoint.source import limit_rate
    from ckptdoctor.facts.siblings import listed_once
    from ckptdoctor.remote.connected import connections_kept
    from ckptdoctor.stores.listing import unit_of
    from ckptdoctor.stores.parts import result_of

    limit_rate(rate)
    known: set[int] = set()
    with listed_once(), connections_kept():
        return [result_of(unit_of(each), known, how) for each in units]
