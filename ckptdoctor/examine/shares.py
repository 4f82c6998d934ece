"""Reads every byte of a checkpoint in shares, each by somebody else, and puts together what they found.

A share is of whole tensors, with all that view the same bytes. What was read of it is plain, so that it goes through
pipes, and adds up in any order (``together``); ``reading`` gives an examination what reading everything at once would
have given it. Where a share is missing, or the file is another one by now, everything is read then: no finding depends
on who read what.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from operator import attrgetter
from typing import Any

from ckptdoctor.checkpoint import Checkpoint, Source, Storage
from ckptdoctor.checkpoint.progress import Progress, WorkDone
from ckptdoctor.checkpoint.sharing import leaves
from ckptdoctor.diagnose.settings import Reader
from ckptdoctor.examine.deep import asked_of, integrity_of, read_everything
from ckptdoctor.noun import noun, replace
from ckptdoctor.rules.framework import Rule
from ckptdoctor.values.damage import Integrity
from ckptdoctor.values.distinct import shown_by
from ckptdoctor.values.statistics import Histogram, TensorValues, Unread, Values

# of which file it is; by the numbers of tensors their values, why these were not read, and what is wrong with indices;
# by their keys the storages that need no other look, with their bytes; and how many bytes were read
Known = tuple[int, dict[int, Any], dict[int, str], dict[int, str], dict[str, int], int]

_FIELDS: tuple[str, ...] = TensorValues.__match_args__  # as every noun has them
_HISTOGRAM: tuple[str, ...] = Histogram.__match_args__
_AT = _FIELDS.index("histogram")


@noun
class Group:
    """Tensors, by their numbers, and the storages that they view, which have so many bytes in the file."""

    numbers: tuple[int, ...]
    storages: tuple[Storage, ...]
    nbytes: int


def groups_of(checkpoint: Checkpoint) -> list[Group]:
    """Return the tensors that are read together, in the order of the file; first those without a place in it."""
    above: dict[str, str] = {}  # for each storage another that one tensor views as well, up to the first

    def first(key: str) -> str:
        while above[key] != key:
            above[key] = key = above[above[key]]
        return key

    storages: dict[str, Storage] = {}
    keys: list[str] = []
    for tensor in checkpoint.tensors:
        pieces = [piece for _, piece in tensor.chunks] if tensor.chunks else [tensor]
        mine = [each.storage for each in leaves(pieces) if each.storage is not None]
        for each in mine:
            storages.setdefault(each.key, each)
            above.setdefault(each.key, each.key)
            above[first(each.key)] = first(mine[0].key)
        keys.append(mine[0].key if mine else "")
    numbers: dict[str, list[int]] = {}
    for number, key in enumerate(keys):
        numbers.setdefault(first(key) if key else "", []).append(number)
    held: dict[str, list[Storage]] = {}
    for key, storage in storages.items():
        held.setdefault(first(key), []).append(storage)
    made = []
    for key, some in numbers.items():
        viewed = sorted(held.get(key, ()), key=_place)
        length = sum([each.extent.length for each in viewed if each.extent is not None])
        made.append(Group(tuple(some), tuple(viewed), length))
    return sorted(made, key=lambda each: _place(each.storages[0]) if each.storages else ("", -1))


def _place(storage: Storage) -> tuple[str, int]:
    return (storage.extent.file, storage.extent.offset) if storage.extent is not None else ("", -1)


def can_be_shared(checkpoint: Checkpoint) -> bool:
    """Return whether parts of it can be read by themselves: not so of what has to be unpacked first."""
    return all(each.extent is None or (each.extent.file and not each.compressed) for each in checkpoint.storages)


def read_share(checkpoint: Checkpoint, source: Source, groups: Sequence[Group], rules: Iterable[Rule]) -> Known:
    """Read the values of some groups, for what these rules ask, and look for damage in their bytes."""
    from ckptdoctor.values.examine import examine_values
    from ckptdoctor.values.storage_checks import StorageChecks

    stamp = _stamp(checkpoint)
    asked = asked_of(rules)
    if asked is None:
        return stamp, {}, {}, {}, {}, 0
    numbers = sorted([number for each in groups for number in each.numbers])
    storages = tuple([storage for each in groups for storage in each.storages])
    part = replace(checkpoint, tensors=tuple([checkpoint.tensors[number] for number in numbers]), storages=storages)
    checks = StorageChecks()
    values = examine_values(part, source, only_finite=asked.only_finite, sums=asked.sums, checks=checks)
    skipped = {each.path: each.reason for each in values.skipped}
    stray = {each.path: each.reason for each in values.stray}
    named = list(zip(numbers, [each.path for each in part.tensors], strict=True))
    return (
        stamp,
        {number: _plain(values.tensors[path]) for number, path in named if path in values.tensors},
        {number: skipped[path] for number, path in named if path in skipped},
        {number: stray[path] for number, path in named if path in stray},
        checks.sound(part, source),
        values.read,
    )


def _plain(values: TensorValues) -> tuple[Any, ...]:
    row = list(attrgetter(*_FIELDS)(values))
    if values.histogram is not None:
        row[_AT] = attrgetter(*_HISTOGRAM)(values.histogram)
    return tuple(row)


def _of_plain(row: Sequence[Any]) -> TensorValues:
    said: dict[str, Any] = dict(zip(_FIELDS, row, strict=True))
    if row[_AT] is not None:
        said["histogram"] = Histogram(*row[_AT])
    return TensorValues(**said)


def _stamp(checkpoint: Checkpoint) -> int:
    """Return what changes when the file does: its headers, and of local files their sizes and times."""
    places = [(each.key, each.nbytes, each.crc32, *_place(each)) for each in checkpoint.storages]
    digest = blake2b(repr(places).encode("utf-8", "surrogatepass"), digest_size=8)
    for file in sorted({each.extent.file for each in checkpoint.storages if each.extent is not None}):
        with suppress(OSError, ValueError):  # an address has none
            status = os.stat(file)
            digest.update(f"{file} {status.st_size} {status.st_mtime_ns} {status.st_ino}\n".encode())
    return int.from_bytes(digest.digest(), "big")


def is_of(known: Known, checkpoint: Checkpoint) -> bool:
    """Return whether it was read of this very file."""
    return known[0] == _stamp(checkpoint)


def together(one: Known, other: Known) -> Known:
    """Return what two shares found; of another file than the first there is nothing to add."""
    if one[0] != other[0]:
        return one
    tensors, skipped, stray, sound = ({**one[at], **other[at]} for at in range(1, 5))  # type: ignore[dict-item]
    return one[0], tensors, skipped, stray, sound, one[5] + other[5]


def reading(known: Known) -> Reader:
    """Return what gives an examination the values and the integrity of the shares, where these are all."""

    def read(
        checkpoint: Checkpoint, source: Source, rules: Iterable[Rule], pictures: bool
    ) -> Generator[Progress, None, tuple[WorkDone[Integrity], WorkDone[Values]]]:
        _, tensors, skipped, stray, sound, nbytes = known
        whole = all(number in tensors or number in skipped for number in range(len(checkpoint.tensors)))
        if pictures or not whole or not is_of(known, checkpoint):
            return (yield from read_everything(checkpoint, source, rules, pictures))
        shown: dict[object, TensorValues] = {}  # tensors that are one have one noun
        found = {
            tensor.path: shown.setdefault(shown_by(tensor), _of_plain(tensors[number]))
            for number, tensor in enumerate(checkpoint.tensors)
            if number in tensors
        }
        unread = [Unread(checkpoint.tensors[number].path, skipped[number]) for number in sorted(skipped)]
        wrong = [Unread(checkpoint.tensors[number].path, stray[number]) for number in sorted(stray)]
        values = Values(checkpoint, found, tuple(unread), nbytes, True, tuple(wrong))
        integrity = yield from integrity_of(checkpoint, source, sound)
        return integrity, WorkDone(Progress("values", nbytes, nbytes, complete=True), values)

    return read
