"""Lists the tensors of a damaged file that can be recovered, in file order, and draws them as a map of its bytes."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ckptdoctor.checkpoint import KeyPath, show_path
from ckptdoctor.checkpoint.natural import naturally
from ckptdoctor.findings import Finding, LostTensor
from ckptdoctor.remote import addresses
from ckptdoctor.rendering.numbers import size
from ckptdoctor.wording import and_more

if TYPE_CHECKING:
    from ckptdoctor.salvaging.checkpoint import Salvage

SAVED, PARTIAL, LOST = "saved", "partial", "lost"

# a file of a folder that cannot be read, or ends before its tensors do; and files that do
_OF_FOLDER = frozenset({"X801", "F014"})
_LAYER = re.compile(r"(.+?)\.(\d{1,9})\.", re.ASCII)
_OF_FILE = frozenset({"F005", "F006", "F007"})


@dataclass(frozen=True, slots=True)
class Fate:
    """The fate of a tensor: ``kind`` in one word, ``said`` in more."""

    path: KeyPath
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    kind: str
    said: str


def damaged_file(path: str, finding: Finding) -> str | None:
    """Return the file of which a finding says that not all is there, and of which something may be saved."""
    if addresses.is_address(path):
        return None
    if not os.path.isdir(path):
        return path if finding.code in _OF_FILE else None
    if finding.code not in _OF_FOLDER or finding.location.member is None:
        return None
    name = os.path.normpath(finding.location.member)
    if os.path.isabs(name) or name.split(os.sep)[0] == os.pardir:  # what leads out of the folder is not opened
        return None
    file = os.path.join(path, name)  # it may be a link, as all files in the cache of huggingface_hub are
    return file if os.path.isfile(file) and os.path.getsize(file) else None


def fates(salvage: Salvage) -> list[Fate]:
    """Return every tensor of the file."""
    lost = {each.path: each for each in salvage.report.lost}
    return [
        Fate(each.path, each.dtype.short, each.shape, each.nbytes, *_fate(lost.get(each.path)))
        for each in salvage.plan.original.tensors
    ]


def in_natural_order(fates: Sequence[Fate]) -> list[Fate]:
    """Return the tensors as people count: layer 2 before layer 10, where a header has them in the order of letters."""
    return [fates[place] for place in naturally([show_path(each.path) for each in fates])]


def _fate(lost: LostTensor | None) -> tuple[str, str]:
    from ckptdoctor.rendering.salvage import state

    if lost is None:
        return SAVED, "intact"
    return (PARTIAL if 0 < lost.share < 1 else LOST), state(lost)


_STATES = {SAVED: "█", PARTIAL: "▒", LOST: "░"}
_NAMED = 4  # runs of layers, or tensors, that are named as lost


def byte_map(fates: Sequence[Fate], cells: int) -> str:
    """Return all bytes of the tensors as a row of cells: intact, in part (or of several kinds), lost."""
    total = sum([fate.nbytes for fate in fates])
    if not total or cells < 1:
        return ""
    kinds: list[set[str]] = [set() for _ in range(cells)]
    at = 0
    for fate in fates:
        for cell in range(at * cells // total, min(cells - 1, max(at, at + fate.nbytes - 1) * cells // total) + 1):
            kinds[cell].add(fate.kind)
        at += fate.nbytes
    return "".join([_STATES[each.pop()] if len(each) == 1 else _STATES[PARTIAL] for each in kinds])


def intact(fates: Sequence[Fate]) -> str:
    """Return how many bytes are intact, and which layers or tensors are not, in a line that is not escaped."""
    total, saved = sum([fate.nbytes for fate in fates]), sum([fate.nbytes for fate in fates if fate.kind == SAVED])
    gone = in_layers([show_path(fate.path) for fate in fates if fate.kind != SAVED])
    lost = f" · lost: {and_more(gone, _NAMED, spelt=str)}" if gone else ""
    return f"{size(saved)} of {size(total)} intact{lost}"


def in_layers(names: Sequence[str]) -> list[str]:
    """Return the names, those of one layer put together, and neighbouring layers as one: ``layers 132–219``."""
    layers: dict[str, list[int]] = {}
    others: list[str] = []
    for name in names:
        match = _LAYER.match(name)
        if match is None:
            others.append(name)
        elif int(match[2]) not in (found := layers.setdefault(match[1], [])):
            found.append(int(match[2]))
    runs = []
    for prefix, numbers in layers.items():
        first = before = None
        for number in [*sorted(numbers), None]:
            if first is not None and before is not None and number != before + 1:
                runs.append(f"{prefix} {first}" if first == before else f"{prefix} {first}–{before}")
                first = None
            first, before = number if first is None else first, number
    return [*runs, *others]
