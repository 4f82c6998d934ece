"""Reports a conversion: what was written, what was proven of it, and what the target could not hold."""

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

    ``sources`` are the files as they were named, ``files`` the names and bytes of what was written, in a folder below
    ``output``. Of the ``tensors``, ``identical`` are ranges of the sources, ``remade`` hold the same elements in a new
    layout (in C order, put together out of pieces, unpacked), and ``computed`` what a repair computes, which a second
    computation gives as well. ``tied`` are (alias, owner): one name keeps the bytes; ``doubled`` counts tensors that
    shared memory and have bytes of their own now. ``sidecar`` holds what are not tensors (``kept``); ``described`` are
    the objects in it that are not plain data. ``left_out`` is what was not asked for, ``absent`` what belongs to the
    sources and was in none of them. ``weights`` is where the state dict is in the output. ``called`` is the name that
    a tensor got that had none. ``twins`` are the weights that several sources have under different names, and the
    output twice.
    """

    sources: tuple[str, ...]
    output: str
    source_format: str
    format: str
    files: tuple[tuple[str, int], ...]
    tensors: int
    nbytes: int
    identical: int
    remade: int
    tied: tuple[tuple[str, str], ...] = ()
    restored: tuple[tuple[str, str], ...] = ()
    doubled: int = 0
    sidecar: str | None = None
    kept: tuple[str, ...] = ()
    described: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    root: KeyPath = ()
    weights: KeyPath | None = None
    replaces_original: bool = False
    seconds: float = 0.0
    called: str | None = None
    twins: tuple[Twins, ...] = ()
    computed: int = 0
