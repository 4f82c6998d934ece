"""Most of the target model finds no weights here, whatever prefix is stripped or added.

Meaning
    After every fix that the other rules propose, less than half of the keys and of the parameters that the reference
    expects have a counterpart with the same shape: these are the weights of another model, or of a small part of it.

Why it matters
    With ``strict=False`` it loads silently, and the model keeps its random weights: the output is noise. torch refuses
    it with ``strict=False`` too where a name is the model's and its shape is not, or where it is not a dict of names.

Symptoms
    Missing key(s) in state_dict: "conv1.weight", "bn1.weight", … (or nothing, with strict=False)
    Unexpected key(s) in state_dict: "encoder.0.weight", …
    size mismatch for fc.weight: copying a param with shape torch.Size([10, 64]) from checkpoint, the shape in current
    model is torch.Size([10, 256]).

Detection
    Keys and shapes are compared as they are, without the names of wrappers, and with the best single prefix stripped or
    added. Less than half of the reference's keys and parameters fit, and no more than half of the keys here. Missing
    and unexpected keys are then not listed one by one. NumPy arrays are compared as the tensors that P202's repair
    makes of them. Lists without names are W305's, and numbers in the place of names W309's.

Repair
    None: no renaming makes these weights fit. Build the model that they belong to, or find the file that belongs to the
    model.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Mapping
from ckptdoctor.checkpoint.tree import mapping_at
from ckptdoctor.facts.adapters import foreign
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison, subject_of
from ckptdoctor.match.shapes.causes import sweeping
from ckptdoctor.match.shapes.tensor_parallel import slice_of
from ckptdoctor.noun import noun
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.structure.odd_leaves import class_of, unnamed, untextual
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
_RESIZED = "These are weights of the same names in other shapes: of a model with other settings."
_WITHOUT = "The file has no dict of a model's weights."
_ADAPTER = "This is an adapter, which extends a model and holds none of its weights."
_SHOWN = 3  # shapes that are quoted


@rule("W311", "uncovered-model", Severity.ERROR)
def uncovered_model(comparison: Comparison) -> Iterator[Problem]:
    """Report checkpoints that fit less than half of the reference."""
    if not comparison.uncovered or _explained(comparison) or sweeping(comparison) or slice_of(comparison):
        return
    adapter = foreign(comparison.state_dict, comparison.reference.tensors)
    renamed = comparison.renamed
    total = len(comparison.reference.tensors)
    fits = f"{len(renamed.fits):,}" if renamed.fits else "none"
    there = wording.proportion(renamed.parameters, comparison.total_parameters)
    here = f"; {subject_of(comparison)} has {wording.plural(len(renamed.here), 'key')}" if comparison.state_dict else ""
    refusal = _refusal(comparison)
    yield Problem(
        message=f"{fits} of {wording.plural(total, 'key')} of {comparison.reference.source} "
        f"({there} of its parameters) {'fits' if len(renamed.fits) == 1 else 'fit'}{here}",
        cause=(_kind(comparison) if adapter is None or adapter.wrapped else _ADAPTER)
        + (
            f" load_state_dict rejects {refusal.what}, with strict=False too." if refusal else f" {_silent(comparison)}"
        ),
        torch_says=refusal.lines if refusal is not None and refusal.alone else _lines(comparison),
        advice="Build the model that this file belongs to, or find the file that belongs to the model."
        if adapter is None or adapter.wrapped
        else "Load the model's own weights first, and add the adapter with PeftModel.from_pretrained.",
        keys=tuple([tensor.path for tensor in renamed.here.values()]),
        location=Location(path=comparison.path),
    )


def _explained(comparison: Comparison) -> bool:
    """Return whether another rule says why: W303 and W310 of missing weights, W305 and W309 of missing names."""
    checkpoint = comparison.checkpoint
    if purpose(checkpoint) or empty_places(checkpoint) or without_elements(checkpoint):
        return True
    return comparison.state_dict is None and (unnamed(checkpoint) is not None or any(untextual(checkpoint)))


def _kind(comparison: Comparison) -> str:
    if comparison.state_dict is None and comparison.parts is None:
        return _WITHOUT
    return _RESIZED if 2 * len(comparison.renamed.mismatched) >= len(comparison.reference.tensors) else _OTHER


def _silent(comparison: Comparison) -> str:
    verb = "they load" if comparison.state_dict is not None else "it loads"
    return f"With strict=False {verb} silently, and the model keeps its random weights."


@noun
class _Refusal:
    """What torch rejects although strict=False spares names, and its words (``alone``: its only words)."""

    what: str
    lines: tuple[str, ...] = ()
    alone: bool = False


def _refusal(comparison: Comparison) -> _Refusal | None:
    """Return what load_state_dict rejects with strict=False too, or None where that loads nothing and says nothing."""
    tree, state_dict = comparison.checkpoint.tree, comparison.state_dict
    if not isinstance(tree, Mapping):
        kind = class_of(tree)
        lines = (f"Expected state_dict to be dict-like, got <class '{kind}'>.",) if kind else ()
        return _Refusal("what is not a dict", lines, alone=True)
    if comparison.nested:
        return None
    entries = mapping_at(tree, comparison.path)
    odd = [part for part, _ in entries.entries if not isinstance(part, str)] if entries is not None else []
    if odd:
        known = isinstance(odd[0], int)
        lines = (f"AttributeError: '{type(odd[0]).__name__}' object has no attribute 'startswith'",) if known else ()
        return _Refusal("a key that is not a text", lines, alone=True)
    if comparison.plain.mismatched:
        return _Refusal("another shape under the model's own name")
    wanted = comparison.reference.tensors
    if state_dict is not None and any(key in wanted for key in state_dict.others):
        return _Refusal("what is not a tensor under the model's own name")
    return None


def _lines(comparison: Comparison) -> tuple[str, ...]:
    renamed, wanted = comparison.renamed, comparison.reference.tensors
    return (
        *((wording.missing_line(renamed.missing),) if renamed.missing else ()),
        *((wording.unexpected_line(renamed.unexpected),) if renamed.unexpected else ()),
        *[
            wording.mismatch_line(key, renamed.here[key].shape, wanted[key].shape)
            for key in renamed.mismatched[:_SHOWN]
        ],
    )
