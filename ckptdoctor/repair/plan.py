"""Turns a request into a plan: which edits, in which order, what comes of them, and how it will be written."""

from __future__ import annotations

import os
from time import perf_counter
from typing import TYPE_CHECKING

from ckptdoctor import formats
from ckptdoctor.account.account import require_accounted
from ckptdoctor.checkpoint import Checkpoint, Container, FolderSource, Source
from ckptdoctor.checkpoint.process import collector_paused
from ckptdoctor.checkpoint.source import to_be_rewritten
from ckptdoctor.diagnose.findings import findings_of, possible
from ckptdoctor.diagnose.fixes import container_findings, fixes, independent, of_index, outside
from ckptdoctor.diagnose.selection import Selection
from ckptdoctor.edits import (
    Drop,
    Edit,
    Rename,
    RenameModules,
    Renumber,
    Reorder,
    SetSuffix,
    TakeRoot,
    Truncate,
    WriteIndex,
)
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.edits.fix import Step
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.reader_notes import require_own_values
from ckptdoctor.findings import Finding, NextStep, Severity
from ckptdoctor.formats.suffixes import asked_for, unwrapped_path
from ckptdoctor.formats.unrepairable import refusal
from ckptdoctor.inplace.change import NotInPlaceError
from ckptdoctor.inplace.disk import SystemDisk
from ckptdoctor.inplace.guards import block_to_insert, require_safe_files
from ckptdoctor.inplace.names import place
from ckptdoctor.noun import noun, replace
from ckptdoctor.repair.casts import values_fixes
from ckptdoctor.repair.draft import ROUNDS, Draft
from ckptdoctor.repair.loadable import next_step, weights_only_refusal
from ckptdoctor.repair.map_file import require_confirmed
from ckptdoctor.repair.request import FixRequest, command_line, index_path, into_a_new_folder, output_path
from ckptdoctor.repair.steps_from_options import add_last_options, add_options, in_its_place
from ckptdoctor.rules.framework import Rule
from ckptdoctor.rules.registry import all_rules
from ckptdoctor.writing import Recipe

if TYPE_CHECKING:  # hardly any repair is one of a folder in place
    from ckptdoctor.formats.folders.in_place import FileEdit

# edits that leave tensors as they are, whatever their state makes of them
_ONLY_NAMES = (Drop, Rename, RenameModules, Renumber, Reorder, SetSuffix, TakeRoot, Truncate, WriteIndex)


@noun
class Plan:
    """A repair before anything is written.

    ``wanted`` is what the output must hold. ``recipe`` says how to write it in the container of the original; it is
    None where there is nothing to repair, and where that container is read but not written. ``left`` are the findings
    of the rules that were to be fixed for which no fix is in the plan: there is none, or it is unsafe. ``index`` is the
    name of the index that is written again, where the checkpoint is a folder: the output is that index. Planning took
    so many ``seconds``: a cast is measured first. ``next`` is what to do with the original where there is nothing to
    repair. ``converts`` is the container that the output's name asks for, where the original's is another: what is
    wanted is written in that one. ``file`` is where the original's bytes are: itself, what it was unpacked into, or a
    folder, of which ``files`` are those that are changed in place.
    """

    request: FixRequest
    output: str
    wanted: Wanted
    steps: tuple[Step, ...]
    recipe: Recipe | None
    left: tuple[Finding, ...] = ()
    index: str | None = None
    seconds: float = 0.0
    next: NextStep | None = None
    converts: str | None = None
    file: str = ""
    files: tuple[FileEdit, ...] = ()

    @property
    def original(self) -> Checkpoint:
        """The contents of the file as they are."""
        return self.wanted.original

    @property
    def expected(self) -> Checkpoint:
        """The contents that the output must have."""
        return self.wanted.contents

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits, in order."""
        return self.wanted.edits


@collector_paused()
def plan(request: FixRequest) -> Plan:
    """Return what the request means for its file. Reads headers only, and writes nothing.

    Raises UnreadableError, NotACheckpointError and DamagedError for the file, UsageError for a bad option,
    RefusedError for what cannot be done without loss or a guess, UnprovenError where a lossless repair cannot be
    promised: the file cannot be written as it was, or what would come of it does not add up (``account.account``).
    """
    started = perf_counter()
    asked = request.auto or request.fixes or request.selection != Selection()
    rules = request.selection.chosen(all_rules()) if asked else ()  # importing all takes as long as reading many files
    with formats.opened(request.path, here=True) as (source, container):
        to_be_rewritten(source)
        formats.require_own(container)
        original = formats.read(source, container)
        if request.error is not None:
            from ckptdoctor.repair.towards_target import with_target  # half of what there is to import is about targets

            request = with_target(request, original)
        require_confirmed(request)
        draft = Draft(original, request.unsafe)
        # what was asked for, in the order in which it applies
        for finding, fix in values_fixes(original, source, rules) if request.selection.select is not None else ():
            draft.add(finding.code, finding.name, fix.title, fix.safety, fix.edits)
        add_options(draft, request)
        if request.remap_optimizer and request.reference is not None:
            request = replace(request, reference=in_its_place(request.reference, draft.checkpoint))
        if request.auto:
            from ckptdoctor.repair.towards_target import bring_to_target
            from ckptdoctor.repair.witness import with_ties

            if request.reference is not None:
                request = replace(request, reference=with_ties(request.reference))
            bring_to_target(draft, source, request, rules)
            _unpack(draft, container)
        add_last_options(draft, request)
        converts = asked_for(request.output, original.format)
        alone = converts is None  # else the whole folder is written, with an index of its own
        left = _fix_findings(draft, container, rules, request.unsafe, alone) if request.fixes else []
        # what is wanted then, and how it is written
        wanted = draft.wanted
        edits = wanted.edits
        _require_values(original, edits)

        index = draft.index if alone else None
        in_place = converts is None and not all(isinstance(each, WriteIndex) for each in edits)
        if in_place and isinstance(source, FolderSource) and not request.in_place:
            flat = all(len(each.path) == 1 for each in wanted.contents.tensors)
            raise refusal(original, command_line(into_a_new_folder(request, flat)))
        recipe = after = None
        files: tuple[FileEdit, ...] = ()
        require_accounted(original, wanted.contents, edits, wanted.remade, wanted.pieces)
        if edits and request.in_place:
            recipe, files = _in_place(wanted, source, request)
        elif edits and (converts is None or formats.is_written(original.format)):
            recipe = formats.write(wanted, source)
        if not edits:
            wrong = _wrong(original, container, request)
            left += [each for each in wrong if (each.code, each.keys) not in {(one.code, one.keys) for one in left}]
            after = next_step(request.path, original, wrong, weights_only_refusal(source, container))
    output = index_path(request, index) if index is not None else _output(request, draft, container)
    return Plan(
        request=request,
        output=output,
        wanted=wanted,
        steps=tuple(draft.steps),
        recipe=recipe,
        left=tuple(left),
        index=index,
        seconds=perf_counter() - started,
        next=after,
        converts=converts,
        file=source.file,
        files=files,
    )


def _unpack(draft: Draft, container: Container) -> None:
    """Take a checkpoint that fits as it is out of the archive that it is packed in; new output is never packed."""
    for finding in () if draft.steps else container_findings(container, all_rules()):
        if finding.code == "C102" and finding.fix is not None:
            draft.add(finding.code, finding.name, finding.fix.title, finding.fix.safety, finding.fix.edits)


def _require_values(original: Checkpoint, edits: tuple[Edit, ...]) -> None:
    """Raise what ``require_own_values`` does, unless only names change."""
    if not all(isinstance(edit, _ONLY_NAMES) for edit in edits):
        require_own_values(original)


def _in_place(wanted: Wanted, source: Source, request: FixRequest) -> tuple[Recipe, tuple[FileEdit, ...]]:
    """Return how to change the file itself, or the files of a folder.

    Raises RefusedError, with the command that writes a new one instead.
    """
    disk, folder = SystemDisk(), place(request.path)[0]
    elsewhere, new = replace(request, in_place=False, output=output_path(request, None)), "file"
    try:
        if isinstance(source, FolderSource):
            from ckptdoctor.formats.folders import in_place as shards
            from ckptdoctor.formats.folders import sharded

            flat = all(len(each.path) == 1 for each in wanted.contents.tensors)
            elsewhere, new = replace(into_a_new_folder(request, flat), in_place=False), "folder" if flat else "file"
            if wanted.original.format != sharded.NAME:
                raise refusal(wanted.original, command_line(elsewhere))
            require_safe_files(source.path, shards.files_in(source))
            files = shards.write_in_place(wanted, source, block_to_insert(disk, folder))
            return Recipe(source.path, (), beside=tuple([each.recipe for each in files])), files
        if os.path.realpath(source.file) != os.path.realpath(request.path):
            raise NotInPlaceError("it is packed in an archive")
        return formats.write_in_place(wanted, source, block_to_insert(disk, folder)), ()
    except NotInPlaceError as error:
        message = f"{request.path} cannot be fixed in place: {error.message}. Write a new {new}: "
        raise RefusedError(message + command_line(elsewhere)) from error


def _output(request: FixRequest, draft: Draft, container: Container) -> str:
    """Return where the output goes."""
    if request.in_place:
        return request.path
    suffix = next((edit.suffix for edit in reversed(draft.edits) if isinstance(edit, SetSuffix)), None)
    return output_path(request, suffix, unwrapped_path(container))


@collector_paused()
def is_carried_out(request: FixRequest) -> bool:
    """Return whether the chain towards a target would be written, and lose no weight.

    As ``plan``, without what would finish where it is not.

    Raises what ``plan`` does where it is refused.
    """
    from ckptdoctor.repair.towards_target import fit_to_reference

    with formats.opened(request.path) as (source, container):
        formats.require_own(container)
        original = formats.read(source, container)
        draft = Draft(original, request.unsafe)
        add_options(draft, request)
        fit_to_reference(draft, source, request, all_rules())
        _require_values(original, draft.edits)
        return bool(draft.edits) and not draft.lost and formats.write(draft.wanted, source) is not None


def _wrong(checkpoint: Checkpoint, container: Container, request: FixRequest) -> list[Finding]:
    """Return the errors in a file in which nothing is to be repaired: a target may want what is wrong by itself."""
    contents = findings_of(checkpoint, all_rules(), request.reference if request.auto else None)
    found = [possible(each, container) for each in [*container_findings(container, all_rules()), *contents]]
    return [each for each in found if each.severity is Severity.ERROR]


def _fix_findings(
    draft: Draft, container: Container, rules: tuple[Rule, ...], unsafe: bool, alone: bool
) -> list[Finding]:
    """Add the fixes of what the rules find, round after round, until none is left that may be applied.

    Where an index is written ``alone``, no shard changes. Gives the findings that stay. Raises RuntimeError for a rule
    whose fix does not help: that is a bug in the rule.
    """
    around = container_findings(container, rules)
    fixed: list[tuple[str, tuple[Edit, ...]]] = []  # a list: the values of edits need not be hashable
    for _ in range(ROUNDS):
        found = [*around, *findings_of(draft.checkpoint, rules)]
        wanted = fixes(found, unsafe)
        indexes = [each for each in wanted if of_index(each[1].edits)]
        if alone and (draft.index is not None or indexes):
            wanted = indexes
        if not wanted:
            return [possible(each, container) for each in found]
        for finding, fix in independent(wanted):
            if (finding.code, fix.edits) in fixed:
                raise RuntimeError(f"{finding.code} finds the same again after its own fix ({fix.title})")
            fixed.append((finding.code, fix.edits))
            draft.add(finding.code, finding.name, fix.title, fix.safety, fix.edits)
            if outside(fix.edits):  # the file around the contents is examined again once it is written
                around.remove(finding)
    raise RuntimeError(f"the fixes do not end; the last one was {draft.steps[-1].label}")
