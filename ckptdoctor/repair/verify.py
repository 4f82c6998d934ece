"""Holds a written file against the plan: its contents, where every storage's bytes came from, and what rules find."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.diagnose.findings import findings_of, worst_first
from ckptdoctor.diagnose.fixes import container_findings
from ckptdoctor.errors import WriteError
from ckptdoctor.facts.globals import is_allowed, modern
from ckptdoctor.findings import Finding, Proof
from ckptdoctor.prove.origins import trace
from ckptdoctor.prove.reopened import read_back, require_same
from ckptdoctor.repair.loadable import next_step, weights_only_refusal
from ckptdoctor.repair.plan import Plan
from ckptdoctor.rules.registry import all_rules


def verify(path: str, plan: Plan) -> Proof:
    """Examine the complete file at ``path``. Raises WriteError, with the place, when it is not what was planned."""
    with read_back(), formats.opened(path) as (source, container):
        written = formats.read(source, container)
        refusal = weights_only_refusal(source, container)
    require_same(plan.expected, written)
    _require_no_new_names(plan.original, written)
    assert plan.recipe is not None
    proof = trace(plan.wanted, written, plan.recipe)
    findings = worst_first([*container_findings(container, all_rules()), *_of_contents(written, plan)])
    _require_fixed(plan, findings)
    after = next_step(plan.output, written, findings, refusal)  # the name that it will have, not that of the moment
    return replace(proof, elided=elided(written), findings=tuple(findings), next=after)


def require_repaired(contents: Checkpoint, plan: Plan) -> None:
    """Raises WriteError where what a rule's fix was applied for is in the contents; the container is another."""
    _require_fixed(plan, _of_contents(contents, plan))


def _of_contents(written: Checkpoint, plan: Plan) -> list[Finding]:
    """What is wrong with the contents by themselves; what the target itself wants, a wrapper's prefix say, is not."""
    rules = [rule for rule in all_rules() if isinstance(written, rule.subject)]
    return findings_of(written, rules, plan.request.reference if plan.request.auto else None)


def _require_no_new_names(original: Checkpoint, written: Checkpoint) -> None:
    """A repair brings in no class or function but those that torch itself accepts, such as OrderedDict."""
    known = {modern(each.module, each.name) for each in original.globals}
    names = [modern(each.module, each.name) for each in written.globals]
    new = [".".join(name) for name in names if name not in known and not is_allowed(*name)]
    if new and original.format == written.format:
        raise WriteError(f"The output names {new[0]}, which the original does not; it was thrown away.")


def _require_fixed(plan: Plan, findings: Iterable[Finding]) -> None:
    """What a rule's fix was applied for must not be there any more."""
    fixed = {step.label: step for step in plan.steps if step.name}
    for finding in findings:
        step = fixed.get(finding.code)
        if step is not None and finding.fix is not None and finding.fix.safety is step.safety:
            raise WriteError(f"The output still has {finding.code} ({finding.message}); it was thrown away.")


def elided(checkpoint: Checkpoint) -> int:
    """The number of places beyond the reader's limits, which were not compared."""
    from ckptdoctor.checkpoint import Elided, walk

    if not any(note.kind.value == "not-examined" for note in checkpoint.notes):
        return 0
    return sum(isinstance(node, Elided) for _, node in walk(checkpoint.tree))
