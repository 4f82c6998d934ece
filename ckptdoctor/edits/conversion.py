"""Defines the report of a conversion: what was written, what was proven of it, and what the target could not hold.

It is here and not in ``converting``, since a repair into another container has such a report, too.
"""

from __future__ import annotations

from ckptdoctor.checkpoint import KeyPath
from ckptdoctor.noun import noun


@noun
class Twins:
    """Tensors of the file ``one`` that are in ``other`` under other names: ``number`` of the ``of`` that only it has.

    ``names`` are some of them, as pairs.
    """

    one: str
    other: str
    number: int
    of: int
    names: tuple[tuple[str, str], ...] = ()


@noun
class ConvertReport:
    """All that is said of one conversion.

    Each of the ``tensors`` is ``identical``, ``remade`` or ``computed``.
    """

    sources: tuple[str, ...]  # as they were named
    output: str
    source_format: str
    format: str
    files: tuple[tuple[str, int], ...]  # name, in a folder below ``output``, and bytes of each that was written
    tensors: int
    nbytes: int
    identical: int  # tensors that are ranges of the sources
    remade: int  # tensors with the same elements in a new layout: in C order, put together out of pieces, unpacked
    tied: tuple[tuple[str, str], ...] = ()  # (alias, owner): the bytes are kept under the owner's name alone
    restored: tuple[tuple[str, str], ...] = ()  # (alias, owner): tied again, as the metadata of the source says
    doubled: int = 0  # tensors that shared memory and have bytes of their own now
    sidecar: str | None = None  # the file of what are not tensors
    kept: tuple[str, ...] = ()  # what is in the sidecar
    described: tuple[str, ...] = ()  # objects in it that are not plain data
    left_out: tuple[str, ...] = ()  # what was not asked for
    absent: tuple[str, ...] = ()  # what belongs to the sources and was in none of them
    root: KeyPath = ()  # the part of the sources that was asked for
    weights: KeyPath | None = None  # where the state dict is in the output
    replaces_original: bool = False
    seconds: float = 0.0
    called: str | None = None  # the name that a tensor got that had none
    twins: tuple[Twins, ...] = ()  # weights that several sources have under different names, and the output twice
    computed: int = 0  # tensors that a repair computes, and a second computation as well
