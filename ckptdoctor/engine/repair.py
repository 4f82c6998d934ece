"""Carries out a plan: writes the output, proves it, and only then publishes it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from ckptdoctor.checkpoint import Role
from ckptdoctor.engine.plan import Plan
from ckptdoctor.engine.verify import verify
from ckptdoctor.engine.weights import weights
from ckptdoctor.findings import Proof, RepairReport
from ckptdoctor.writing import Written, publish


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a plan. ``written`` and ``proof`` are None where there was nothing to repair."""

    plan: Plan
    written: Written | None = None
    proof: Proof | None = None

    @property
    def report(self) -> RepairReport:
        """What is said of it."""
        seconds = self.written.seconds if self.written is not None else 0.0
        return replace(preview(self.plan), proof=self.proof, seconds=seconds)


def repair(plan: Plan) -> Outcome:
    """Write the output of ``plan``, verified; the original stays as it is unless it is what ``force`` replaces.

    Raises WriteError when the output could not be written or is not what was planned; then nothing has changed.
    """
    if plan.recipe is None:
        return Outcome(plan)
    proofs: list[Proof] = []
    written = publish(
        plan.recipe,
        plan.output,
        force=plan.request.force,
        verify=lambda path: proofs.append(verify(path, plan)),
        identity=plan.original.identity,
    )
    return Outcome(plan, written, proofs[0])


def preview(plan: Plan) -> RepairReport:
    """What is said of a plan that has not been carried out."""
    models = [each for each in weights(plan.expected) if each.role is Role.MODEL]
    return RepairReport(
        path=plan.request.path,
        output=plan.output,
        format=plan.expected.format,
        steps=plan.steps,
        size=plan.recipe.size if plan.recipe is not None else plan.original.size,
        new_bytes=plan.recipe.new_bytes if plan.recipe is not None else 0,
        left=plan.left,
        weights=models[0].path if len(models) == 1 else None,
        replaces_original=os.path.realpath(plan.output) == os.path.realpath(plan.request.path),
    )
