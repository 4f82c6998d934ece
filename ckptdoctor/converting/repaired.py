"""Carries out a plan whose output may be another container than the original: what is wanted, written in that one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ckptdoctor.checkpoint import ROOT, NoteKind, Tensor
from ckptdoctor.checkpoint.changed_trees import source_of
from ckptdoctor.converting.conversion import convert, converted
from ckptdoctor.converting.inputs import absent, file_in, plain, require_one_value, require_whole
from ckptdoctor.converting.request import ConvertRequest
from ckptdoctor.converting.writing import examined
from ckptdoctor.edits.applied.wanted import Wanted, by_itself
from ckptdoctor.errors import CkptDoctorError, RefusedError
from ckptdoctor.facts.reader_notes import require_own_values
from ckptdoctor.findings import Proof
from ckptdoctor.formats.advice import converted_first
from ckptdoctor.noun import replace
from ckptdoctor.prove.output import counted
from ckptdoctor.repair.plan import Plan
from ckptdoctor.repair.repair import Outcome, elided, repair, require_repaired
from ckptdoctor.writing.target import require_folder, resolve


def carry_out(plan: Plan) -> Outcome:
    """Write the output of ``plan``, verified, in the container that its name asks for; as ``repair`` otherwise."""
    return repair(plan) if plan.converts is None else _converted(plan)


def _converted(plan: Plan) -> Outcome:
    """Return the repaired contents in the container that the output's name asks for, from the original's bytes."""
    request = ConvertRequest((plan.request.path,), plan.output, force=plan.request.force)
    if not plan.edits:
        return _examined(Outcome(plan, conversion=convert(request)))
    require_folder(plan.output)
    if not plan.output.endswith("/"):
        resolve(plan.output, os.stat(plan.file), force=plan.request.force)
    require_repaired(plan.expected, plan)
    with _said_of(plan.file, plan.request.path):
        wanted = _wanted(plan)
        identity = None if os.path.isdir(plan.file) else plan.original.identity
        conversion = replace(converted(request, wanted, ROOT, identity), absent=_absent(plan))
    proof = replace(counted(plan.wanted), elided=elided(plan.expected))
    return _examined(Outcome(plan, proof=proof, conversion=conversion))


def _wanted(plan: Plan) -> Wanted:
    """Return what the plan wants, of another container. Raises what reading a file with such contents raises."""
    original, path = plan.original, plan.request.path
    there = {source.path for each in plan.expected.tensors if isinstance(source := source_of(each), Tensor)}
    require_one_value(original, path, ROOT, there)
    if plan.recipe is not None:  # whoever can write the container has looked at it
        _require_own_values(plan)
    else:
        require_whole(replace(original, rivals=()), path, ROOT)
        if original.big_endian and plan.wanted.remade:
            why = f"The values of {path} are big-endian, so they cannot be used in computations."
            raise RefusedError(f"{why} {converted_first(path)}")
    wanted = by_itself(plan.wanted, file_in(original, plan.file))
    return replace(wanted, contents=plain(wanted.contents))


def _absent(plan: Plan) -> tuple[str, ...]:
    """Return what belongs to the original and is not there; whoever can write the container has looked at it."""
    return () if plan.recipe is not None else absent((plan.request.path,), (plan.original,))


def _require_own_values(plan: Plan) -> None:
    """Raise DamagedError where what is shown of a tensor is not what torch loads, unless the edits leave it out."""
    there = {source.path for each in plan.expected.tensors if isinstance(source := source_of(each), Tensor)}
    kept = [
        note
        for note in plan.original.notes
        if note.kind is not NoteKind.TENSOR_STATE or not note.keys or not there.isdisjoint(note.keys)
    ]
    require_own_values(replace(plan.original, notes=tuple(kept)))


@contextmanager
def _said_of(file: str, path: str) -> Iterator[None]:
    """Errors speak of what was named, not of the file that it was unpacked into, and say whose option convert's is."""
    try:
        yield
    except CkptDoctorError as error:
        message = error.message.replace(file, path)
        if "--flatten" in message:
            message += "\n  --flatten is an option of convert: repair into a .pt file first, and convert that"
        error.message = message
        error.args = (message,)
        raise


def _examined(outcome: Outcome) -> Outcome:
    """Return the findings of check in the converted output, in the place of those it had before."""
    found, after = examined(outcome.plan.output)
    return replace(outcome, proof=replace(outcome.proof or Proof(0, 0), findings=found, next=after))
