"""Carries out a plan: writes the output, proves it, and only then publishes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from ckptdoctor import formats
from ckptdoctor.checkpoint import Role
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.converting.request import ConvertRequest
from ckptdoctor.edits.conversion import ConvertReport
from ckptdoctor.engine.diagnose import check
from ckptdoctor.engine.events import Progress
from ckptdoctor.engine.loadable import next_step, weights_only_refusal
from ckptdoctor.engine.plan import Plan
from ckptdoctor.engine.verify import verify
from ckptdoctor.engine.verify_index import verify_index
from ckptdoctor.errors import CkptDoctorError, WriteError
from ckptdoctor.findings import Loader, NextStep, Proof, RepairReport
from ckptdoctor.late import dataclass
from ckptdoctor.writing import Copy, Part, Recipe, Written, publish_together
from ckptdoctor.writing.target import Target, require_folder, resolve


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a plan. ``written`` and ``proof`` are None where there was nothing to repair.

    ``conversion`` is what became of the repaired contents, where they were to be in another container.
    """

    plan: Plan
    written: Written | None = None
    proof: Proof | None = None
    conversion: ConvertReport | None = None

    @property
    def report(self) -> RepairReport:
        """What is said of it."""
        seconds = self.plan.seconds + self.written.seconds if self.written is not None else 0.0
        seconds += self.conversion.seconds if self.conversion is not None else 0.0
        after = self.proof.next if self.proof is not None else self.plan.next
        made = preview(self.plan)
        return replace(made, proof=self.proof, seconds=seconds, next=after, conversion=self.conversion)


def repair(plan: Plan, watch: Callable[[Progress], None] | None = None) -> Outcome:
    """Write the output of ``plan``, verified; the original stays as it is unless it is what ``force`` replaces.

    ``watch`` is told how far it is; what that raises ends it. Raises WriteError when the output could not be written
    or is not what was planned; then nothing has changed.
    """
    if plan.converts is not None:
        return _converted(plan, watch)
    if plan.recipe is None:
        return Outcome(plan)
    proofs: list[Proof] = []
    holds = verify if plan.index is None else verify_index
    part = Part(plan.recipe, plan.output, lambda path: proofs.append(holds(path, plan)))
    parts = [*_kept(plan, plan.recipe), part]
    told = None if watch is None else lambda what, done, total: watch(Progress(what, done, total))
    written = publish_together(parts, force=plan.request.force, identity=plan.original.identity, watch=told)
    return Outcome(plan, written[-1], proofs[0])


def _converted(plan: Plan, watch: Callable[[Progress], None] | None) -> Outcome:
    """The repaired contents in the container that the output's name asks for.

    The repaired file is proven and converted in a temporary folder, which is removed with it.
    """
    from ckptdoctor.converting.conversion import convert
    from ckptdoctor.writing.unfinished import temporary_folder

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
                between = repair(replace(plan, output=path, converts=None), watch)
            with _renamed(path, plan.request.path):
                conversion = convert(replace(request, paths=(path,), original=plan.request.path))
    except OSError as error:
        raise WriteError(f"{plan.output} could not be written: {error.strerror or error}.") from error
    conversion = replace(conversion, sources=(plan.request.path,), replaces_original=_replaces(plan))
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
    """What check finds in the converted output, in the place of what it found before."""
    found = check(outcome.plan.output)
    proof = outcome.proof or Proof(0, 0)
    after = NextStep(Loader.OTHER)
    if not os.path.isdir(outcome.plan.output) and found.checkpoint is not None:
        with formats.opened(outcome.plan.output) as (source, container):
            refused = weights_only_refusal(source, container)
        after = next_step(outcome.plan.output, found.checkpoint, found.findings, refused)
    return replace(outcome, proof=replace(proof, findings=found.findings, next=after))


def _kept(plan: Plan, recipe: Recipe) -> list[Part]:
    """The old index under another name, where the new one takes its place: nothing else says what it said."""
    if plan.index is None or not _replaces(plan):
        return []
    old = Recipe(recipe.source, (Copy(0, os.path.getsize(recipe.source)),))
    return [Part(old, f"{plan.output}.bak")]


def _replaces(plan: Plan) -> bool:
    original = os.path.join(plan.request.path, plan.index or "")
    return os.path.realpath(plan.output) == os.path.realpath(original)


def preview(plan: Plan) -> RepairReport:
    """What is said of a plan that has not been carried out."""
    models = [each for each in weights_among(plan.expected.state_dicts) if each.role is Role.MODEL]
    return RepairReport(
        path=plan.request.path,
        output=plan.output,
        format=plan.expected.format,
        steps=plan.steps,
        size=plan.recipe.size if plan.recipe is not None else plan.original.size,
        new_bytes=plan.recipe.new_bytes if plan.recipe is not None else 0,
        left=plan.left,
        weights=models[0].path if len(models) == 1 else None,
        replaces_original=_replaces(plan),
        next=plan.next,
        converts=plan.converts,
    )
