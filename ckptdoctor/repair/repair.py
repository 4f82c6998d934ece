"""Carries out a plan: writes the output, proves it, and only then publishes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from ckptdoctor import formats
from ckptdoctor.brief import in_full
from ckptdoctor.checkpoint import Checkpoint, Container, FolderSource, Role, Tensor
from ckptdoctor.checkpoint.source import Overlay
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.diagnose.findings import findings_of, possible, worst_first
from ckptdoctor.diagnose.fixes import container_findings
from ckptdoctor.edits.conversion import ConvertReport
from ckptdoctor.errors import CkptDoctorError, WriteError
from ckptdoctor.findings import Finding, Proof, RepairReport
from ckptdoctor.noun import noun
from ckptdoctor.repair.plan import Plan
from ckptdoctor.repair.verify import verify
from ckptdoctor.rules.registry import all_rules
from ckptdoctor.rules.sharding.index_repair import against_index
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
        done = self.written if self.conversion is None else self.conversion
        seconds = 0.0 if done is None else self.plan.seconds + done.seconds
        after = self.proof.next if self.proof is not None else self.plan.next
        made = preview(self.plan)
        return replace(made, proof=self.proof, seconds=seconds, next=after, conversion=self.conversion)


def repair(plan: Plan) -> Outcome:
    """Write the output of ``plan``, verified; the original stays as it is unless it is what ``force`` replaces.

    The output is in the container of the original (``converting.repaired`` writes others). Raises WriteError when the
    output could not be written or is not what was planned; then nothing has changed.
    """
    assert plan.converts is None  # else this would write another container than the name says
    if plan.recipe is None:
        return Outcome(plan)
    proofs: list[Proof] = []
    holds = verify if plan.index is None else verify_index
    part = Part(plan.recipe, plan.output, lambda path: proofs.append(holds(path, plan)))
    parts = [*_kept(plan, plan.recipe), part]
    written = publish_together(parts, force=plan.request.force, identity=plan.original.identity)
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


# ---- holds a new index against the shards: the tensors of the folder are what they were, and nothing speaks against it


def verify_index(path: str, plan: Plan) -> Proof:
    """Read the folder with the index at ``path``. Raises WriteError, with the tensor, when it is not what it was."""
    assert plan.index is not None
    try:
        with closing(FolderSource(plan.request.path)) as folder:
            names = folder.names
        with closing(Overlay(plan.request.path, {plan.index: path}, names)) as changed:
            container = formats.examine(changed)
            written = formats.read(changed, container)
    except CkptDoctorError as error:
        raise WriteError(f"The new index cannot be read and was thrown away: {error.message}") from error
    before, after = dict(_places(plan.original)), dict(_places(written))
    unlike = next((name for name in (*before, *after) if before.get(name) != after.get(name)), None)
    if unlike is not None:
        raise WriteError(f"With the new index {unlike} would be another tensor; it was thrown away.")
    wrong = against_index(written)
    if wrong is not None:
        raise WriteError(f"The new index is not right either ({wrong}), and was thrown away.")
    count = len(plan.original.storages)
    return Proof(storages=count, identical=count, findings=tuple(worst_first(_findings(container, written))))


def _findings(container: Container, written: Checkpoint) -> Iterator[Finding]:
    for finding in (*container_findings(container, all_rules()), *findings_of(written)):
        yield possible(finding, container)


def _places(checkpoint: Checkpoint) -> Iterator[tuple[str, object]]:
    """What each tensor is, and where its bytes lie."""
    for tensor in checkpoint.tensors:
        yield in_full(tensor.path), _place(tensor)


def _place(tensor: Tensor) -> object:
    where = None if tensor.storage is None else tensor.storage.extent
    return tensor.form, tensor.rebuild, where, tuple([_place(part) for part in tensor.parts])
