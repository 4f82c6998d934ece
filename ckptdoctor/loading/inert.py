"""Stands in for objects that a checkpoint names but that are never made."""

from __future__ import annotations

from typing import Any

from ckptdoctor.noun import field, noun


@noun(frozen=False)
class Inert:
    """An object as the file describes it: its class, the arguments it would be called with, the state it would get.

    ``items`` and ``entries`` are what would be appended to it or set in it as a list or dict.
    Nothing of ``class_name`` was imported or called.
    """

    class_name: str
    arguments: list[Any] = field(default_factory=list)
    state: Any = None
    items: list[Any] = field(default_factory=list)
    entries: dict[Any, Any] = field(default_factory=dict)
