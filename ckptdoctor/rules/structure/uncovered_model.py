"""Most of the target model finds no weights here, whatever prefix is stripped or added.

Meaning
    After every fix that the other rules propose, less than half of the keys and of the parameters that the reference
    expects have a counterpart with the same shape: these are the weights of another model, or of a small part of it.

Why it matters
    With ``strict=False`` it loads silently, and the model keeps its random weights: the output is noise.

Symptoms
    Missing key(s) in state_dict: "conv1.weight", "bn1.weight", … (or nothing, with strict=False)
    Unexpected key(s) in state_dict: "encoder.0.weight", …

Detection
    Keys and shapes are compared as they are, without the names of wrappers, and with the best single prefix stripped or
    added. Less than half of the reference's keys and parameters fit, and no more than half of the keys here. Missing
    and unexpected keys are then not listed one by one.

Repair
    None: no renaming makes these weights fit. Build the model that they belong to, or find the file that belongs to the
    model.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.adapters import foreign
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison, subject_of
from ckptdoctor.match.shapes.causes import sweeping
from ckptdoctor.match.shapes.tensor_parallel import slice_of
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.structure.without_weights import empty_places, purpose, without_elements

_WANTED = {"conv.weight": T((4, 3, 3, 3)), "fc.weight": T((2, 4)), "fc.bias": T((2,))}
SICK = (
    Example("another model", {"encoder.0.weight": T((8, 8)), "encoder.1.weight": T((8, 8))}, like=_WANTED),
    Example("no weights at all", {"epoch": 3, "loss": 0.1}, like=_WANTED),
)
HEALTHY = (
    Example("the same model", _WANTED, like=_WANTED),
    Example(
        "the same model except for its head",
        {"conv.weight": T((4, 3, 3, 3)), "fc.weight": T((5, 4)), "fc.bias": T((5,))},
        like={"conv.weight": T((4, 3, 3, 3)), "fc.weight": T((2, 4)), "fc.bias": T((2,))},
    ),
)
_OTHER = "These are the weights of another model, or of a small part of this one."
_ADAPTER = "This is an adapter, which extends a model and holds none of its weights."


@rule("W311", "uncovered-model", Severity.ERROR)
def uncovered_model(comparison: Comparison) -> Iterator[Problem]:
    """Report checkpoints that fit less than half of the reference."""
    if not comparison.uncovered or _explained(comparison.checkpoint) or sweeping(comparison) or slice_of(comparison):
        return
    adapter = foreign(comparison.state_dict, comparison.reference.tensors)
    renamed = comparison.renamed
    total = len(comparison.reference.tensors)
    fits = f"{len(renamed.fits):,}" if renamed.fits else "none"
    there = wording.proportion(renamed.parameters, comparison.total_parameters)
    here = f"; {subject_of(comparison)} has {wording.plural(len(renamed.here), 'key')}" if comparison.state_dict else ""
    yield Problem(
        message=f"{fits} of {wording.plural(total, 'key')} of {comparison.reference.source} "
        f"({there} of its parameters) {'fits' if len(renamed.fits) == 1 else 'fit'}{here}",
        cause=(_OTHER if adapter is None or adapter.wrapped else _ADAPTER)
        + " With strict=False they load silently, and the model keeps its random weights.",
        torch_says=(
            wording.missing_line([*renamed.missing, *renamed.mismatched]),
            *((wording.unexpected_line(renamed.unexpected),) if renamed.unexpected else ()),
        ),
        advice="Build the model that this file belongs to, or find the file that belongs to the model."
        if adapter is None or adapter.wrapped
        else "Load the model's own weights first, and add the adapter with PeftModel.from_pretrained.",
        keys=tuple([tensor.path for tensor in renamed.here.values()]),
        location=Location(path=comparison.path),
    )


def _explained(checkpoint: Checkpoint) -> bool:
    """Return whether W303 (no model at all) or W310 (nothing in it) says why."""
    return bool(purpose(checkpoint) or empty_places(checkpoint) or without_elements(checkpoint))
