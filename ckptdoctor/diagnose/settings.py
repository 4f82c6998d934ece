"""Describes what was asked of an examination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.findings import Severity
from ckptdoctor.noun import field, noun

# reads every byte of a checkpoint, as ``examine.deep.read_everything`` does
Reader = Callable[..., Any]

# the fields of Settings that say where a reference comes from, as people see them on the command line
SOURCES = ("like", "model", "config", "error")


@noun
class Settings:
    """What to examine and how deeply.

    What is wanted comes from one source at most: ``like`` is the path of another checkpoint, ``model`` names a class or
    function in the user's code (``nets:Net``, see ``target.target``), ``config`` is the path of a Hugging Face
    ``config.json`` or its folder, ``error`` that of a text with an error of ``load_state_dict`` ("-": standard input).
    ``org/name`` stands for what the local cache of the Hub holds (``target.hub_cache``).
    ``root`` is the key path of the state dict that matters ("state_dict", parts joined
    by "/"). ``fail_on`` is the lowest severity that makes the exit status 1; None: findings never do. ``unpack`` says
    whether what is packed is unpacked where headers would do: for who reads values of the same checkpoint afterwards.
    ``pictures`` says whether values are measured for pictures of them, and not for rules alone: ``events.Measured``.
    ``reader`` reads every byte instead of the examination, for who has read them already.
    """

    selection: Selection = field(default_factory=Selection)
    deep: bool = False
    like: str | None = None
    model: str | None = None
    config: str | None = None
    error: str | None = None
    root: str | None = None
    fail_on: Severity | None = Severity.WARNING
    unpack: bool = True
    pictures: bool = False
    reader: Reader | None = None
