"""Defines what became of each tensor of a source in an export, as nouns that reports render."""

from __future__ import annotations

from enum import Enum

from ckptdoctor.against.compare import Outcome
from ckptdoctor.against.links import Link
from ckptdoctor.noun import noun


class Verdict(str, Enum):
    """What became of a tensor; those up to ``DROPPED`` are accounted for."""

    SAME = "same"  # every bit of it is there
    CAST = "cast"  # it was rounded to another dtype, or widened
    QUANTISED = "quantised"  # within what rounding to the levels of a packed format explains
    DEQUANTISED = "dequantised"  # it was packed, and its numbers are there
    TIED = "tied"  # it is one memory with another tensor, which is there
    DROPPED = "dropped"  # it was said to be left out, or follows from the sizes of the model
    WRONG = "wrong"  # what is in its place does not follow from it
    ELSEWHERE = "elsewhere"  # its values are where those of another tensor belong
    MISSING = "missing"
    UNKNOWN = "unknown"  # it cannot be compared

    @property
    def accounted(self) -> bool:
        """Whether the tensor is accounted for."""
        return self in _ACCOUNTED


_ACCOUNTED = frozenset(
    {Verdict.SAME, Verdict.CAST, Verdict.QUANTISED, Verdict.DEQUANTISED, Verdict.TIED, Verdict.DROPPED}
)


@noun
class Place:
    """Where elements of a tensor are: the tensor of the export, what it is stored as, and how they got there.

    ``fused``: they are a part of it only; ``split``: they are a part of the tensor of the source. ``padding`` is how
    many rows the export has more, or fewer (negative), of a vocabulary whose rows are all there. ``reshaped`` is the
    shape of the export, where it is another although all elements are there in their order.
    """

    link: Link
    stored_as: str
    outcome: Outcome
    fused: bool = False
    split: bool = False
    padding: int = 0
    reshaped: tuple[int, ...] | None = None


@noun
class Fate:
    """What became of one tensor of the source. ``told`` says more where there is more to say."""

    name: str
    verdict: Verdict
    places: tuple[Place, ...] = ()
    told: str = ""
    nbytes: int = 0


@noun
class New:
    """A tensor of the export that does not come from the source. ``accounted``: it was said to be added."""

    name: str
    told: str = ""
    accounted: bool = False


@noun
class AgainstReport:
    """What became of the tensors of ``source`` in the export at ``path``, in the order of the source."""

    path: str
    source: str
    fates: tuple[Fate, ...]
    new: tuple[New, ...]
    bytes_read: int
    seconds: float

    @property
    def accounted(self) -> bool:
        """Whether every tensor of both is accounted for."""
        return all(each.verdict.accounted for each in self.fates) and all(each.accounted for each in self.new)
