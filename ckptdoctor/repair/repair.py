"""Carries out a plan: writes the output, proves it, and only then publishes it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing

from ckptdoctor import formats
from ckptdoctor.brief import in_full
from ckptdoctor.checkpoint import Checkpoint, Container, Elided, FolderSource, Role, Tensor, walk
from ckptdoctor.checkpoint.source import Overlay, to_be_judged
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.diagnose.findings import findings_of, possible, worst_first
from ckptdoctor.diagnose.fixes import container_findings
from ckptdoctor.errors import CkptDoctorError, WriteError
from ckptdoctor.facts.globals import is_allowed, modern
from ckptdoctor.findings import ConvertReport, Finding, InPlace, Proof, RepairReport
from ckptdoctor.noun import noun, replace
from ckptdoctor.prove.output import trace
from ckptdoctor.prove.same_contents import read_back, require_same
from ckptdoctor.repair.loadable import next_step, weights_only_refusal
from ckptdoctor.repair.plan import Plan
from ckptdoctor.rules.registry import all_rules, concerned
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
    in_place: InPlace | None = None

    @property
    def report(self) -> RepairReport:
        """What is said of it."""
        done = self.written if self.conversion is None else self.conversion
        seconds = 0.0 if done is None else self.plan.seconds + done.seconds
        after = self.proof.next if self.proof is not None else self.plan.next
        made = preview(self.plan)
        return replace(
            made, proof=self.proof, seconds=seconds, next=after, conversion=self.conversion, in_place=self.in_place
        )


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
    """Return the old index under another name, where the new one takes its place: nothing else says what it said.

    Raises WriteError where something has that name, be it an index that was kept before.
    """
    if plan.index is None or not replaces(plan):
        return []
    kept = f"{plan.output}.bak"
    if os.path.lexists(kept):
        raise WriteError(f"The old index is kept as {kept}, which already exists; move that away, or use -o.")
    old = Recipe(recipe.source, (Copy(0, os.path.getsize(recipe.source)),))
    return [Part(old, kept)]


def replaces(plan: Plan) -> bool:
    """Return whether the output takes the place of the original."""
    original = plan.request.path if plan.index is None or plan.recipe is None else plan.recipe.source
    return os.path.realpath(plan.output) == os.path.realpath(original)


def preview(plan: Plan) -> RepairReport:
    """Return what is said of a plan that has not been carried out."""
    models = [each for each in weights_among(plan.expected.state_dicts) if each.role is Role.MODEL]
    recipes = [] if plan.recipe is None else [plan.recipe, *plan.recipe.beside]
    return RepairReport(
        path=plan.request.path,
        output=plan.output,
        format=plan.expected.format,
        steps=plan.steps,
        size=sum([each.size for each in recipes]) if recipes else plan.original.size,
        new_bytes=sum([each.new_bytes for each in recipes]),
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
        raise WriteError(f"The new index cannot be read and was discarded: {error.message}") from error
    before, after = dict(_places(plan.original)), dict(_places(written))
    unlike = next((name for name in (*before, *after) if before.get(name) != after.get(name)), None)
    if unlike is not None:
        raise WriteError(f"With the new index {unlike} would be another tensor; it was discarded.")
    wrong = against_index(written)
    if wrong is not None:
        raise WriteError(f"The new index is not right either ({wrong}), and was discarded.")
    count = len(plan.original.storages)
    return Proof(storages=count, identical=count, findings=tuple(worst_first(_findings(container, written))))


def _findings(container: Container, written: Checkpoint) -> Iterator[Finding]:
    for finding in (*container_findings(container, all_rules()), *findings_of(written)):
        yield possible(finding, container)


def _places(checkpoint: Checkpoint) -> Iterator[tuple[str, object]]:
    """Yield what each tensor is, and where its bytes are."""
    for tensor in checkpoint.tensors:
        yield in_full(tensor.path), _place(tensor)


def _place(tensor: Tensor) -> object:
    where = None if tensor.storage is None else tensor.storage.extent
    return tensor.form, tensor.rebuild, where, tuple([_place(part) for part in tensor.parts])


# ---- holds a written file against the plan: its contents, where every storage's bytes came from, and what rules find


def verify(path: str, plan: Plan) -> Proof:
    """Examine the complete file at ``path``. Raises WriteError, with the place, when it is not what was planned."""
    with read_back(), formats.opened(path) as (source, container):
        to_be_judged(source)
        written = formats.read(source, container)
        refusal = weights_only_refusal(source, container)
    return proven(written, container, refusal, plan)


def proven(written: Checkpoint, container: Container, refusal: str, plan: Plan) -> Proof:
    """Compare what was read back with the plan. Raises WriteError, with the place, when it is not what was planned."""
    assert plan.recipe is not None
    require_same(plan.expected, written)
    proof = trace(plan.wanted, written, plan.recipe)
    return judged(proof, written, container, refusal, plan)


def judged(proof: Proof, written: Checkpoint, container: Container, refusal: str, plan: Plan) -> Proof:
    """Return the proof with what rules find. Raises WriteError where that is what was to be repaired, or new names."""
    _require_no_new_names(plan.original, written)
    findings = worst_first([*container_findings(container, concerned(container)), *_of_contents(written, plan)])
    _require_fixed(plan, findings)
    after = next_step(plan.output, written, findings, refusal)  # the name that it will have, not that of the moment
    return replace(proof, elided=elided(written), findings=tuple(findings), next=after)


def require_repaired(contents: Checkpoint, plan: Plan) -> None:
    """Raise WriteError where what a rule's fix was applied for is in the contents; the container is another."""
    _require_fixed(plan, _of_contents(contents, plan))


def _of_contents(written: Checkpoint, plan: Plan) -> list[Finding]:
    """Return what is wrong with the contents by themselves; what the target wants, a wrapper's prefix say, is not."""
    reference = plan.request.reference if plan.request.auto else None
    rules = concerned(written) if reference is None else all_rules()  # those of ``check`` on the output
    return findings_of(written, [rule for rule in rules if isinstance(written, rule.subject)], reference)


def _require_no_new_names(original: Checkpoint, written: Checkpoint) -> None:
    """A repair brings in no class or function but those that torch itself accepts, such as OrderedDict."""
    known = {modern(each.module, each.name) for each in original.globals}
    names = [modern(each.module, each.name) for each in written.globals]
    new = [".".join(name) for name in names if name not in known and not is_allowed(*name)]
    if new and original.format == written.format:
        raise WriteError(f"The output names {new[0]}, which the original does not; it was discarded.")


def _require_fixed(plan: Plan, findings: Iterable[Finding]) -> None:
    """Raise WriteError where what a rule's fix was applied for is still there."""
    fixed = {step.label: step for step in plan.steps if step.name}
    for finding in findings:
        step = fixed.get(finding.code)
        if step is not None and finding.fix is not None and finding.fix.safety is step.safety:
            raise WriteError(f"The output still has {finding.code} ({finding.message}); it was discarded.")


def elided(checkpoint: Checkpoint) -> int:
    """Return the number of places beyond the reader's limits, which were not compared."""
    if not any(note.kind.value == "not-examined" for note in checkpoint.notes):
        return 0
    return sum(isinstance(node, Elided) for _, node in walk(checkpoint.tree))
