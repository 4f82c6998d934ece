"""Carries out a plan in the file itself, and proves no more than was read: the headers, and what was written."""

from __future__ import annotations

import os
from contextlib import closing
from time import perf_counter

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, FileSource
from ckptdoctor.errors import WriteError
from ckptdoctor.findings import InPlace, Proof
from ckptdoctor.inplace.change import FileChange, in_place
from ckptdoctor.inplace.changing import change_clone, change_files
from ckptdoctor.inplace.disk import SystemDisk
from ckptdoctor.prove.same_contents import read_back
from ckptdoctor.repair.loadable import weights_only_refusal
from ckptdoctor.repair.plan import Plan
from ckptdoctor.repair.repair import Outcome, proven
from ckptdoctor.writing import Written
from ckptdoctor.writing.interrupts import cleaned_up


def repair_in_place(plan: Plan) -> Outcome:
    """Change the file of ``plan`` where it is, verified; in any other case it stays as it is.

    Raises WriteError and RefusedError; the file is as it was then, unless the message calls it interrupted.
    """
    if plan.recipe is None:
        return Outcome(plan)
    started = perf_counter()
    path, identity = plan.request.path, plan.original.identity
    assert identity is not None
    with FileSource(path) as source:
        change = in_place(plan.recipe, os.path.basename(os.path.realpath(path)), source.size, source.read)
    disk, words = SystemDisk(), [step.title for step in plan.steps]
    proofs: list[tuple[Proof, int, int]] = []
    with cleaned_up():
        done = change_clone(disk, path, change, identity, words, lambda at: proofs.append(_verify(at, change, plan)))
        means = "journal" if done is None else "clone"
        if done is None:
            done = change_files(
                disk, path, [change], [identity], words, lambda: proofs.append(_verify(path, change, plan))
            )
    proof, left, moved = proofs[-1]
    written = Written(path, change.new_size, change.new_size - change.written, perf_counter() - started)
    told = InPlace(means, done.written, done.journal, change.inserted, left, moved)
    return Outcome(plan, written, proof, in_place=told)


def _verify(path: str, change: FileChange, plan: Plan) -> tuple[Proof, int, int]:
    """Return the proof, and how many storages were left alone and moved. Raises WriteError, with the place."""
    with read_back(), closing(FileSource(path)) as source:  # its journal makes it interrupted for everybody else
        for write in change.writes:
            if source.read(write.at, len(write.data)) != write.data:
                raise WriteError(
                    f"{path} differs from the plan within {len(write.data):,} bytes from byte {write.at}; it was "
                    "restored. The disk or the memory may be faulty."
                )
        container = formats.examine(source)
        written = formats.read(source, container)
        refusal = weights_only_refusal(source, container)
    left, moved = _untouched(written, change)
    return proven(written, container, refusal, plan), left, moved


def _untouched(written: Checkpoint, change: FileChange) -> tuple[int, int]:
    """Return how many storages no write touches, and how many are within one. Raises WriteError for one in between."""
    left = moved = 0
    for storage in written.storages:
        place = storage.extent
        begin, end = (0, 0) if place is None else (place.offset, place.offset + place.length)
        over = [write for write in change.writes if write.at < end and begin < write.end]
        if begin == end or not over:
            left += 1
        elif over[0].at <= begin and end <= over[0].end:
            moved += 1
        else:
            raise WriteError(f"A part of storage {storage.key} would be written; the file was restored.")
    return left, moved
