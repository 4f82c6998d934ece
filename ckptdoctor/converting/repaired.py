"""Carries out a plan whose output may be another container than the original: repaired, and then converted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ckptdoctor import formats
from ckptdoctor.converting.conversion import convert
from ckptdoctor.converting.request import ConvertRequest
from ckptdoctor.errors import CkptDoctorError, WriteError
from ckptdoctor.examine.file import check
from ckptdoctor.findings import Loader, NextStep, Proof
from ckptdoctor.repair.loadable import next_step, weights_only_refusal
from ckptdoctor.repair.plan import Plan
from ckptdoctor.repair.repair import Outcome, repair, replaces
from ckptdoctor.writing.target import Target, require_folder, resolve
from ckptdoctor.writing.unfinished import temporary_folder


def carry_out(plan: Plan) -> Outcome:
    """Write the output of ``plan``, verified, in the container that its name asks for; as ``repair`` otherwise."""
    return repair(plan) if plan.converts is None else _converted(plan)


def _converted(plan: Plan) -> Outcome:
    """The repaired contents in the container that the output's name asks for.

    The repaired file is proven and converted in a temporary folder, which is removed with it.
    """
    request = ConvertRequest((plan.request.path,), plan.output, force=plan.request.force)
    if plan.recipe is None:
        return _examined(Outcome(plan, conversion=convert(request)))
    folder, name = require_folder(plan.output), os.path.basename(os.path.realpath(plan.output))
    suffix = ".safetensors" if plan.expected.format == "safetensors" else ".pt"
    if not plan.output.endswith("/"):
        resolve(plan.output, os.stat(plan.recipe.source), force=plan.request.force)
    try:
        with temporary_folder(Target(os.path.join(folder, name), folder, False)) as beside:
            path = os.path.join(beside, f"repaired{suffix}")
            with _renamed(path, plan.output):
                between = repair(replace(plan, output=path, converts=None))
            with _renamed(path, plan.request.path):
                conversion = convert(replace(request, paths=(path,), original=plan.request.path))
    except OSError as error:
        raise WriteError(f"{plan.output} could not be written: {error.strerror or error}.") from error
    conversion = replace(conversion, sources=(plan.request.path,), replaces_original=replaces(plan))
    return _examined(replace(between, plan=plan, conversion=conversion))


@contextmanager
def _renamed(path: str, name: str) -> Iterator[None]:
    """Errors speak of ``name``, not of the temporary file, and say whose option convert's is."""
    try:
        yield
    except CkptDoctorError as error:
        message = error.message.replace(path, name)
        if "--flatten" in message:
            message += "\n  --flatten is an option of convert: repair into a .pt file first, and convert that"
        raise type(error)(message) from error


def _examined(outcome: Outcome) -> Outcome:
    """The findings of check in the converted output, in the place of those it had before."""
    found = check(outcome.plan.output)
    proof = outcome.proof or Proof(0, 0)
    after = NextStep(Loader.OTHER)
    if not os.path.isdir(outcome.plan.output) and found.checkpoint is not None:
        with formats.opened(outcome.plan.output) as (source, container):
            refused = weights_only_refusal(source, container)
        after = next_step(outcome.plan.output, found.checkpoint, found.findings, refused)
    return replace(outcome, proof=replace(proof, findings=found.findings, next=after))
