"""Holds what a page is made of: a report, values where they were read, and a comparison where there is one."""

from __future__ import annotations

from functools import cached_property

from ckptdoctor.checkpoint import Checkpoint, Tensor, show_path
from ckptdoctor.checkpoint.natural import naturally
from ckptdoctor.differences import Difference
from ckptdoctor.findings import FileReport
from ckptdoctor.noun import noun
from ckptdoctor.rendering.fates import Fate
from ckptdoctor.values.statistics import TensorValues, Values


@noun
class DamagedFile:
    """A file that is cut off or damaged: the fate of each tensor in it, in file order, or why none can be recovered."""

    path: str
    fates: tuple[Fate, ...] = ()
    why: str = ""


@noun(slots=False)
class Examined:
    """The report on a file, its values where they were read, and the comparison with another one where there is one.

    ``when`` is the time of the examination as people write it; ``version`` is that of ckptdoctor. ``damaged`` are the
    files that are cut off or damaged, where their bytes were read.
    """

    report: FileReport
    values: Values | None = None
    difference: Difference | None = None
    version: str = ""
    when: str = ""
    damaged: tuple[DamagedFile, ...] = ()

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The contents of the file, where they could be read."""
        return self.report.checkpoint

    @cached_property
    def places(self) -> list[int]:
        """The natural order of the tensors, by their places in the file: layer 2 comes before layer 10."""
        every = self.checkpoint.tensors if self.checkpoint is not None else ()
        return naturally([show_path(tensor.path) for tensor in every])

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor of the file, in natural order."""
        every = self.checkpoint.tensors if self.checkpoint is not None else ()
        return tuple([every[place] for place in self.places])

    @cached_property
    def tied(self) -> dict[int, int]:
        """The number of each tensor that is the same view of the same storage as an earlier one, and of that one."""
        first: dict[object, int] = {}
        places = [first.setdefault(tensor.view_id or tensor.path, number) for number, tensor in enumerate(self.tensors)]
        return {number: other for number, other in enumerate(places) if number != other}

    def measured(self, tensor: Tensor) -> TensorValues | None:
        """Return the values of a tensor in numbers; None where they were not read, or only looked through for NaN."""
        found = self.values.of(tensor) if self.values is not None else None
        return found if found is not None and (found.histogram is not None or not found.finite) else None
