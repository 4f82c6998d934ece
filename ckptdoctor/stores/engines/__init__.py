"""Defines what an engine is: it examines batches of units somewhere, and gives their rows back in any order.

``local`` does so in processes of this machine. Others may register under the entry-point group ``ckptdoctor.engines``
a function that takes the address after ``=`` (or None) and the number of jobs (or None), and returns an ``Engine``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Protocol

from ckptdoctor.errors import UsageError
from ckptdoctor.noun import noun
from ckptdoctor.stores.examine import Rows
from ckptdoctor.stores.order import Batch
from ckptdoctor.wording import did_you_mean, listed

GROUP = "ckptdoctor.engines"


@noun
class Done:
    """What came of a batch, or of a part of it: ``rows`` of its next units, in order; ``over`` with the last of them.

    ``failure`` says why there are none of the others: whoever examined them died, or fell silent.
    """

    batch: int
    rows: tuple[Rows, ...] = ()
    over: bool = False
    failure: str = ""


class Engine(Protocol):
    """Examines batches. ``width`` is how many should be submitted before the first of them is done."""

    width: int

    def submit(self, number: int, batch: Batch) -> None:
        """Have a batch examined, in which what is done is called by this number."""

    def completed(self, seconds: float) -> list[Done]:
        """Return what was done since the last call; where that is nothing, wait so many seconds for some."""

    def close(self) -> None:
        """End at once, whatever is still being examined."""


def engine_named(name: str, jobs: int | None) -> Engine:
    """Return the engine that ``--engine`` names: ``local``, or ``name=address`` of one that is installed.

    Raises UsageError for an unknown one.
    """
    kind, _, address = name.partition("=")
    if kind == "local" and not address:
        from ckptdoctor.stores.engines.local import LocalEngine

        return LocalEngine(jobs)
    known = {each.name: each for each in entry_points(group=GROUP)}
    if kind not in known:
        names = sorted({"local", *known})
        raise UsageError(f'--engine: "{kind}" is not one of {listed(names)}.{did_you_mean(kind, names)}')
    make: Callable[[str | None, int | None], Engine] = known[kind].load()
    return make(address or None, jobs)
