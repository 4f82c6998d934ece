"""Losing a rank, as the others see it: what their errors mean, and who is missing.

A process that dies or hangs does not say so. The others notice in their next collective: at once when a connection is
closed, or after the timeout when nothing comes. In both cases they cannot tell who it was: in a ring of ranks a
connection breaks because the neighbour, too, gave up. So every survivor leaves a mark in the store where the ranks met,
and after a moment the ones without a mark are known.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from ckptdoctor.errors import TrainingError
from ckptdoctor.trainer.launch.positions import RankPosition
from ckptdoctor.trainer.launch.reports import GOES_ON, ranks, seconds

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]  # documented, but missing in its __all__

    from ckptdoctor.trainer.launch.variables import RankPlace

_ASKING = 2.0
"""Seconds in which survivors find each other: they notice within a step of each other."""

# what gloo (transport/tcp), the stores of torch.distributed and NCCL say; all of them raise a RuntimeError
_TIMED_OUT = re.compile(
    r"Timed out waiting \d+ms|Wait timeout|wait timeout after|Timeout waiting for key|(?:Read|Write|Connect) timeout "
    r"|Application timeout caused pair closure|Timed out after \d+ seconds waiting for clients"
    r"|client socket has timed out|Watchdog caught collective operation timeout"
)
_CLOSED = re.compile(
    r"Connection closed by peer|Connection reset by peer|Connection refused|Broken pipe|Socket closed"
    r"|Failed to recv, got 0 bytes|failed to recv, got 0 bytes|client socket has failed to connect"
    r"|Gloo connectFullMesh failed|NCCL communicator was aborted|remote process exited|ncclRemoteError"
)


class LostContactError(TrainingError):
    """This rank is well, and another one is dead or silent. Never the cause of the end of a run."""


def is_lost_contact(error: BaseException) -> bool:
    """Return whether this error, or one that it was raised from, says that another rank is gone."""
    return any(isinstance(each, LostContactError) or _says(each, _TIMED_OUT, _CLOSED) for each in _chain(error))


def says_lost_contact(text: str) -> bool:
    """Return whether a log ends in NCCL's words for it: its watchdog aborts a process that waits for a dead rank."""
    return "Watchdog caught collective operation timeout" in text or "NCCL communicator was aborted" in text


def lost_contact(
    error: BaseException, place: RankPlace, store: Store | None, waited: float, position: RankPosition
) -> LostContactError:
    """Return the sentence that a survivor ends with. Where no launcher watches, it names who is missing."""
    timed_out = any(_says(each, _TIMED_OUT) for each in _chain(error))
    if store is None:
        return LostContactError(
            f"rank {place.rank} waited {seconds(waited)}, and not all of the {place.world_size} ranks "
            "connected: start as many as the world size, with one MASTER_ADDR and MASTER_PORT that all can "
            "reach."
        )
    what = f"rank {place.rank} " + (f"waited {seconds(waited)}" if timed_out else "lost its connection")
    if place.alone_on_machine:
        return LostContactError(f"{what} {position}: another rank has exited or hangs; {GOES_ON}")
    gone = missing_ranks(store, place)
    if not gone:
        return LostContactError(f"the ranks lost contact with each other: {what} {position}; {GOES_ON}")
    verb = "has exited or hangs" if len(gone) == 1 else "have exited or hang"
    return LostContactError(f"{ranks(gone)} {verb}: {what} {position}; {GOES_ON}")


def missing_ranks(store: Store, place: RankPlace, wait: float = _ASKING) -> list[int]:
    """Return the ranks that did not mark themselves as survivors in ``wait`` seconds; every survivor calls this."""
    answer: list[list[int]] = []
    # the store may live in a rank that hangs, and a request to a stopped process takes as long as that process likes
    asking = threading.Thread(target=lambda: answer.append(_ask(store, place, wait)), daemon=True)
    asking.start()
    asking.join(2 * wait + 1)
    return answer[0] if answer else [0]


def _ask(store: Store, place: RankPlace, wait: float) -> list[int]:
    others = [rank for rank in range(place.world_size) if rank != place.rank]
    try:
        store.set(f"survivor/{place.rank}", "")
        gone = unmarked(store, "survivor", others, wait)
        store.set(f"knows/{place.rank}", "")
        if place.rank == 0:  # it may be the keeper of the store, which has to stay until everybody knows
            unmarked(store, "knows", [rank for rank in others if rank not in gone], wait)
    except RuntimeError:  # the store is gone, and rank 0 with it
        return [0]
    return gone


def unmarked(store: Store, name: str, others: list[int], wait: float) -> list[int]:
    """Return those of ``others`` that have not set ``name/rank`` in the store after ``wait`` seconds."""
    deadline = time.monotonic() + wait
    while True:
        without = [rank for rank in others if not store.check([f"{name}/{rank}"])]
        if not without or time.monotonic() > deadline:
            return without
        time.sleep(0.05)


def wait_for_all(store: Store, name: str, place: RankPlace, wait: float) -> None:
    """Go on when every rank has come here. A barrier through the store, which needs no process group.

    Raises RuntimeError, as the store does, when one has not come after ``wait`` seconds.
    """
    store.set(f"{name}/{place.rank}", "")
    store.wait([f"{name}/{rank}" for rank in range(place.world_size)], timedelta(seconds=wait))


def _says(error: BaseException, *what: re.Pattern[str]) -> bool:
    return isinstance(error, RuntimeError) and any(pattern.search(str(error)) for pattern in what)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, what it was raised from, and what was being handled when it was raised."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
