"""Defines how an export is asked to be compared with its source."""

from __future__ import annotations

from ckptdoctor.noun import noun


@noun
class Request:
    """An export, its source, and what of either is known not to be on the other side: patterns of names.

    ``root`` and ``source_root`` are the parts that hold the weights, where that has to be said.
    """

    export: str
    source: str
    dropped: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    root: str | None = None
    source_root: str | None = None
