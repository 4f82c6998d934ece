"""Tensors of the weights require gradients: they are parameters, or results of a computation.

Meaning
    ``dict(model.named_parameters())`` or tensors from a forward pass were saved. ``Module.state_dict()`` gives plain
    tensors, which do not.

Why it matters
    ``load_state_dict`` still copies their values. Computing with the loaded tensors themselves silently builds a graph,
    and in-place changes are refused.

Symptoms
    a leaf Variable that requires grad is being used in an in-place operation.
    Or memory that grows.

Detection
    ``requires_grad`` as the pickle states it, of the tensors in a model's state dict.

Repair
    None is needed to load it into a model. Save ``model.state_dict()``, or ``{k: v.detach() for …}``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import requires_grad

SICK = (
    Example("parameters", {"w": T((2, 2), parameter=True), "b": T((2,), parameter=True), "n": T((1,), "int64")}),
    Example("a parameter among others", {"model": {"fc.weight": T((2, 2), parameter=True), "fc.bias": T((2,))}}),
)
HEALTHY = (
    Example("a state dict", {"w": T((2, 2)), "b": T((2,))}),
    Example("a parameter without gradients", {"w": T((2, 2), "int64", parameter=True), "b": T((2,))}),
)


@rule("A711", "grad-attached", Severity.INFO, when=requires_grad)
def grad_attached(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report tensors that require gradients."""
    for state_dict in weights_among(checkpoint.state_dicts):
        found = [each for each in state_dict.tensors if each.requires_grad]
        if found:
            total = len(state_dict.tensors)
            verb = "requires" if len(found) == 1 else "require"
            whole = len(found) == total and total > 1
            which = wording.all_of(total, "tensor") if whole else f"{len(found):,} of {wording.plural(total, 'tensor')}"
            yield Problem(
                message=f"{which}{wording.of_place(state_dict.path)} {verb} gradients",
                cause="Parameters were saved, instead of state_dict(). load_state_dict still copies their values; "
                "computing with the loaded tensors themselves builds a graph.",
                advice="Save model.state_dict() next time; call .detach() on tensors that you use without a model.",
                keys=tuple([each.path for each in found]),
                location=Location(path=state_dict.path),
            )
