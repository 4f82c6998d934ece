"""Carries out a plan: writes the output, proves it, and only then publishes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from ckptdoctor.checkpoint import Role
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.diagnose.events import Progress
from ckptdoctor.edits.conversion import ConvertReport
from ckptdoctor.findings import Proof, RepairReport
from ckptdoctor.noun import noun
from ckptdoctor.repair.plan import Plan
from ckptdoctor.repair.verify import verify
from ckptdoctor.repair.verify_index import verify_index
from ckptdoctor.writing import Copy, Part, Recipe, Written, publish_together


@noun
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

    The output is in the container of the original (``converting.repaired`` writes others). ``watch`` is told how far it
    is; what that raises ends it. Raises WriteError when the output could not be written
    or is not what was planned; then nothing has changed.
    """
    assert plan.converts is None  # else this would write another container than the name says
    if plan.recipe is None:
        return Outcome(plan)
    proofs: list[Proof] = []
    holds = verify if plan.index is None else verify_index
    part = Part(plan.recipe, plan.output, lambda path: proofs.append(holds(path, plan)))
    parts = [*_kept(plan, plan.recipe), part]
    told = None if watch is None else lambda what, done, total: watch(Progress(what, done, total))
    written = publish_together(parts, force=plan.request.force, identity=plan.original.identity, watch=told)
    return Outcome(plan, written[-1], proofs[0])


def _kept(plan: Plan, recipe: Recipe) -> list[Part]:
    """The old index under another name, where the new one takes its place: nothing else says what it said."""
    if plan.index is None or not replaces(plan):
        return []
    old = Recipe(recipe.source, (Copy(0, os.path.getsize(recipe.source)),))
    return [Part(old, f"{plan.output}.bak")]


def replaces(plan: Plan) -> bool:
    """Whether the output takes the place of the original."""
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
        replaces_original=replaces(plan),
        next=plan.next,
        converts=plan.converts,
    )
