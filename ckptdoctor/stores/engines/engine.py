"""Says what an engine is: it examines batches of units somewhere, and gives their rows back in any order."""

from __future__ import annotations

from typing import Any, Protocol

from ckptdoctor.noun import noun
from ckptdoctor.stores.order import Batch


@noun
class Done:
    """What came of a batch, or of some of it: ``rows`` of its next units, in order; ``over`` with the last of them.

    ``rows`` are what ``parts.result_of`` returns: of a batch that is a part of a unit, what was read of that.

    ``failure`` says why there are none of the others: whoever examined them died, or fell silent.
    """

    batch: int
    rows: tuple[Any, ...] = ()
    over: bool = False
    failure: str = ""


class Engine(Protocol):
    """Examines batches."""

    @property
    def width(self) -> int:
        """How many batches should be submitted before the first of them is done."""

    @property
    def workers(self) -> int:
        """How many batches are examined at once."""

    def submit(self, number: int, batch: Batch) -> None:
        """Have a batch examined, in which what is done is called by this number."""

    def completed(self, seconds: float) -> list[Done]:
        """Return what was done since the last call; where that is nothing, wait so many seconds for some."""

    def close(self) -> None:
        """End at once, whatever is still being examined."""
