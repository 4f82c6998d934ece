"""Holds what a page is made of: a report, values where they were read, and a comparison where there is one."""

from __future__ import annotations

from functools import cached_property

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.differences import Difference
from ckptdoctor.findings import FileReport
from ckptdoctor.noun import noun
from ckptdoctor.values.statistics import TensorValues, Values


@noun(slots=False)
class Examined:
    """The report on a file, its values where they were read, and the comparison with another one where there is one.

    ``when`` is the time of the examination as people write it; ``version`` is that of ckptdoctor.
    """

    report: FileReport
    values: Values | None = None
    difference: Difference | None = None
    version: str = ""
    when: str = ""

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The contents of the file, where they could be read."""
        return self.report.checkpoint

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor of the file, in its order."""
        return self.checkpoint.tensors if self.checkpoint is not None else ()

    @cached_property
    def tied(self) -> dict[int, int]:
        """The number of each tensor that is the same view of the same storage as an earlier one, and of that one."""
        first: dict[object, int] = {}
        places = [first.setdefault(tensor.view_id or tensor.path, number) for number, tensor in enumerate(self.tensors)]
        return {number: other for number, other in enumerate(places) if number != other}

    def measured(self, tensor: Tensor) -> TensorValues | None:
        """The values of a tensor in numbers; None where they were not read, or only looked through for NaN."""
        found = self.values.of(tensor) if self.values is not None else None
        return found if found is not None and (found.histogram is not None or not found.finite) else None
