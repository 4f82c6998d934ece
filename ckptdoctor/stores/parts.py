"""Reads a checkpoint that is too large for one process in parts, and makes the same rows of them.

Each part is read by whoever is free, and knows nothing of the others: all cut the checkpoint in the same way, between
tensors. Whoever has all parts examines the checkpoint as it is examined at once, and only what no part has is read
then. So the rows are the same, also where a part could not be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.crash import wants_trace
from ckptdoctor.examine import shares
from ckptdoctor.rules.registry import deep as deep_rules
from ckptdoctor.runs.validity import examined
from ckptdoctor.stores.contents import Checksums, Reading
from ckptdoctor.stores.examine import Rows, rows_of
from ckptdoctor.stores.listing import Unit
from ckptdoctor.stores.values import Part


def result_of(unit: Unit, known: set[int], how: tuple[Any, ...]) -> Rows | Part:
    """Return what ``Batch.how`` asks of a unit: its rows, or a part of it."""
    deep, part, read = how
    if part is not None:
        return read_part(unit, *part)
    return rows_of(unit, known, deep=deep, read=reduce(together, read) if read else None)


def read_part(unit: Unit, number: int, of: int) -> Part:
    """Read one of so many parts of a checkpoint. What cannot be read is left to who puts them together."""
    try:
        return dict(_read(unit, number, of))
    except Exception:  # the last step reads it again, and tells what is wrong
        if wants_trace():
            raise
        return {}


def _read(unit: Unit, number: int, of: int) -> Iterator[tuple[str, tuple[shares.Known, Checksums]]]:
    found = examined(unit.candidate)
    if found.trouble:  # then no byte of it is read
        return
    members = dict(zip(found.parts.paths, [each.checkpoint for each in found.reports], strict=True))
    whole = {path: each for path, each in members.items() if each is not None and shares.can_be_shared(each)}
    for path, groups in _of_part(whole, number, of).items():
        checkpoint = whole[path]
        with formats.opened(path, headers=True) as (source, _):
            known = shares.read_share(checkpoint, source, groups, deep_rules())
        reading = Reading()
        for tensor in [checkpoint.tensors[at] for each in groups for at in each.numbers]:
            reading.read_for(tensor)
        yield path, (known, reading.found)


def _of_part(members: dict[str, Checkpoint], number: int, of: int) -> dict[str, list[shares.Group]]:
    """Return the groups of each member that are in a part: all parts have about as many bytes."""
    groups = [(path, each) for path, checkpoint in members.items() for each in shares.groups_of(checkpoint)]
    total = max(1, sum([each.nbytes for _, each in groups]))
    found: dict[str, list[shares.Group]] = {}
    at = 0
    for path, each in groups:
        if min(at * of // total, of - 1) == number:
            found.setdefault(path, []).append(each)
        at += each.nbytes
    return found


def together(one: Part, other: Part) -> Part:
    """Return what two parts know."""
    both = {}
    for path in one.keys() & other.keys():
        (known, checksums), (more, others) = one[path], other[path]
        same = known[0] == more[0]  # else the file was replaced meanwhile
        both[path] = shares.together(known, more), {**checksums, **(others if same else {})}
    return {**one, **other, **both}
