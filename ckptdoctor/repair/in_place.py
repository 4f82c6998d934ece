"""Carries out a plan in the file itself, and proves no more than was read: the headers, and what was written."""

from __future__ import annotations

import os
from contextlib import closing
from time import perf_counter

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, FileSource, FolderSource, Source
from ckptdoctor.checkpoint.source import to_be_judged
from ckptdoctor.errors import WriteError
from ckptdoctor.findings import InPlace, Proof
from ckptdoctor.inplace.change import FileChange, in_place
from ckptdoctor.inplace.changing import Done, change_clone, change_files
from ckptdoctor.inplace.disk import SystemDisk
from ckptdoctor.prove.output import trace
from ckptdoctor.prove.same_contents import read_back, require_same
from ckptdoctor.repair.loadable import weights_only_refusal
from ckptdoctor.repair.plan import Plan
from ckptdoctor.repair.repair import Outcome, judged, proven
from ckptdoctor.writing import Recipe, Written
from ckptdoctor.writing.interrupts import cleaned_up


def repair_in_place(plan: Plan) -> Outcome:
    """Change the file of ``plan`` where it is, or all files of a folder together, verified; else they stay as they are.

    Raises WriteError and RefusedError; everything is as it was then, unless the message calls it interrupted.
    """
    if plan.recipe is None:
        return Outcome(plan)
    return _folder(plan) if plan.files else _file(plan, plan.recipe)


def _file(plan: Plan, recipe: Recipe) -> Outcome:
    started = perf_counter()
    path, identity = plan.request.path, plan.original.identity
    assert identity is not None
    change = _change(recipe, os.path.basename(os.path.realpath(path)))
    disk, words = SystemDisk(), [step.title for step in plan.steps]
    proofs: list[tuple[Proof, int, int]] = []
    with cleaned_up():
        done = change_clone(disk, path, change, identity, words, lambda at: proofs.append(_verify(at, change, plan)))
        means = "journal" if done is None else "clone"
        if done is None:
            done = change_files(
                disk, path, [change], [identity], words, lambda: proofs.append(_verify(path, change, plan))
            )
    return _outcome(plan, [change], means, done, proofs[-1], started)


def _folder(plan: Plan) -> Outcome:
    """Clones would get their names one by one, and a crash between two would leave half a change: so no clones here."""
    started = perf_counter()
    changes = [_change(each.recipe, each.name) for each in plan.files]
    known, words = [each.was for each in plan.files], [step.title for step in plan.steps]
    proofs: list[tuple[Proof, int, int]] = []
    with cleaned_up():
        done = change_files(
            SystemDisk(), plan.request.path, changes, known, words, lambda: proofs.append(_verify_all(changes, plan))
        )
    return _outcome(plan, changes, "journal", done, proofs[-1], started)


def _change(recipe: Recipe, name: str) -> FileChange:
    with FileSource(recipe.source) as source:
        return in_place(recipe, name, source.size, source.read)


def _outcome(
    plan: Plan, changes: list[FileChange], means: str, done: Done, found: tuple[Proof, int, int], started: float
) -> Outcome:
    proof, left, moved = found
    size, inserted = sum([each.new_size for each in changes]), max([each.inserted for each in changes])
    written = Written(plan.request.path, size, size - done.written, perf_counter() - started)
    told = InPlace(means, done.written, done.journal, inserted, left, moved)
    return Outcome(plan, written, proof, in_place=told)


def _verify(path: str, change: FileChange, plan: Plan) -> tuple[Proof, int, int]:
    """Return the proof, and how many storages were left alone and moved. Raises WriteError, with the place."""
    with read_back(), closing(FileSource(path)) as source:  # its journal makes it interrupted for everybody else
        _require_written(source, change)
        container = formats.examine(source)
        to_be_judged(source)
        written = formats.read(source, container)
        refusal = weights_only_refusal(source, container)
    left, moved = _untouched(written, change)
    return proven(written, container, refusal, plan), left, moved


def _verify_all(changes: list[FileChange], plan: Plan) -> tuple[Proof, int, int]:
    """Return the same of a folder: each file is what it was to be, and all of them together are what was planned."""
    folder, total = plan.request.path, len(plan.original.storages)
    moved = 0
    for change, file in zip(changes, plan.files, strict=True):
        with read_back(), closing(FileSource(os.path.join(folder, file.name))) as source:
            _require_written(source, change)
            if file.wanted is None:
                continue
            written = formats.read(source, formats.examine(source))
        require_same(file.wanted.contents, written)
        trace(file.wanted, written, file.recipe)
        moved += _untouched(written, change)[1]
    with read_back(), closing(FolderSource(folder)) as whole:
        container = formats.examine(whole)
        written = formats.read(whole, container)
        refusal = weights_only_refusal(whole, container)
    require_same(plan.expected, written)
    return judged(Proof(total, total), written, container, refusal, plan), total - moved, moved


def _require_written(source: Source, change: FileChange) -> None:
    for write in change.writes:
        if source.read(write.at, len(write.data)) != write.data:
            raise WriteError(
                f"{source.path} differs from the plan within {len(write.data):,} bytes from byte {write.at}; it was "
                "restored. The disk or the memory may be faulty."
            )


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
