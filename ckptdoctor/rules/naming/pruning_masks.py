"""Weights are pruned: stored as an original and a mask, whose product is the weight.

Meaning
    ``torch.nn.utils.prune`` puts ``weight_orig`` and ``weight_mask`` in place of ``weight``, and likewise for any other
    parameter (``bias_orig``, ``weight_hh_l0_orig``). The weight itself is computed whenever the module is used.

Why it matters
    Only a model that was pruned in the same places loads them. ``prune.remove`` makes the pruning permanent, and must
    be called before saving.

Symptoms
    Missing key(s) in state_dict: "fc.weight".
    Unexpected key(s) in state_dict: "fc.weight_orig", "fc.weight_mask".

Detection
    Both names of a pair, and no parameter with the name that they share. With a reference, only where it has the plain
    parameter in the shape of the original, and neither of the two: a buffer of its own called ``weight_mask`` is left
    alone. Where one of the two is missing, or their shapes differ, that is reported, and nothing is computed.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER`` writes the product, ``mask.to(original.dtype) * original``, with exactly
    the bits that ``prune.remove`` gives. Without a target: ``ckptdoctor fix FILE --select N429 --unsafe-fixes``. The
    values that the mask hides remain only in the original file, and an optimizer's state for the originals no longer
    fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.edits import Compute, Fix, Safety
from ckptdoctor.edits.computing import FLOATS, MASKED, MASKS
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.parametrized import Pruned, pruned_for, pruned_in
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.choosing import auto_option
from ckptdoctor.rules.kit.weight_forms import WeightForm, changes
from ckptdoctor.rules.naming.plain_weights import load_before
from ckptdoctor.rules.when import keys_mention

_PRUNED = {"fc.weight_orig": T((2, 4)), "fc.weight_mask": T((2, 4)), "fc.bias": T((2,))}
_PLAIN = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}
SICK = (
    Example("a pruned layer", _PRUNED),
    Example("a pruned layer in a training checkpoint", {"epoch": 1, "model": _PRUNED}),
    Example("a pruned layer for a plain one", _PRUNED, like=_PLAIN),
    Example("a mask with a different dtype", {**_PRUNED, "fc.weight_mask": T((2, 4), "bool")}, like=_PLAIN),
    Example("no mask", {"fc.weight_orig": T((2, 4)), "fc.bias": T((2,))}, like=_PLAIN),
    Example("a mask with a different shape", {**_PRUNED, "fc.weight_mask": T((4,))}, like=_PLAIN),
)
HEALTHY = (
    Example("a plain layer", _PLAIN),
    Example("the target is pruned the same way", _PRUNED, like=_PRUNED),
    Example("a weight with a mask of its own", {**_PLAIN, "fc.weight_mask": T((2, 4))}),
    Example(
        "spectral norm",
        {"fc.weight_orig": T((2, 4)), "fc.weight_u": T((2,)), "fc.weight_v": T((4,)), "fc.bias": T((2,))},
    ),
)


@rule("N429", "pruning-masks", Severity.INFO, when=keys_mention("_mask"))
def pruning_masks(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report pairs of an original and a mask."""
    if isinstance(subject, Comparison):
        found = pruned_for(subject)
        if found:
            yield _problem(found, subject.path, Safety.CONFIRMED, auto_option(subject), Severity.ERROR)
        return
    for state_dict in subject.state_dicts:
        found = pruned_in(state_dict) if state_dict.role in WEIGHTS else ()
        if found:
            yield _problem(found, state_dict.path, Safety.UNSAFE, "--select N429", Severity.INFO)


def _problem(found: tuple[Pruned, ...], place: KeyPath, safety: Safety, option: str, severity: Severity) -> Problem:
    first, more = found[0], len(found) - 1
    ready = tuple(_edits(found, place))
    parts = [part for each in found for part in each.parts]
    likewise = wording.beyond(more, "parameter", before="; ", after=" likewise")
    verb = "is" if len(first.parts) == 1 else "are"
    title = f"multiply {wording.plural(len(ready), 'pruned parameter')} by the mask, and drop the values that it hides"
    return Problem(
        message=f"{wording.listed(list(first.parts))} {verb} here instead of {first.key}{likewise}",
        cause="Saved from a model pruned with torch.nn.utils.prune, which computes each parameter from an original "
        "and a mask; a model that was not pruned has neither name.",
        torch_says=(wording.missing_line([each.key for each in found]), wording.unexpected_line(parts)),
        advice=_advice(found),
        keys=tuple([each.path for one in found for each in (one.original, one.mask) if each is not None]),
        location=Location(path=place),
        fix=Fix(title, ready, safety, option) if ready else None,
        severity=severity,
    )


def _edits(found: Iterable[Pruned], place: KeyPath) -> Iterator[Compute]:
    for each in found:
        if _ready(each) and each.original is not None and each.mask is not None:
            paths = (each.original.path, each.mask.path)
            yield Compute(paths, each.key, MASKED, each.original.dtype.name, place)


def _ready(each: Pruned) -> bool:
    """Return whether both parts are there, and torch multiplies such ones."""
    kinds = (each.original.dtype.name, each.mask.dtype.name) if each.original and each.mask else ("", "")
    return each.fits and kinds[0] in FLOATS and kinds[1] in MASKS


def _advice(found: Iterable[Pruned]) -> str:
    """Return why one of them is not computed."""
    odd = next((each for each in found if not _ready(each)), None)
    if odd is None:
        return ""
    if odd.original is None:
        return f"Only the mask of {odd.key} is here, not its values: no repair exists. Look for {odd.key}_orig."
    if odd.mask is None:
        return f"Only the mask of {odd.key}, which is not here, shows what was pruned: no repair exists."
    kinds = " and ".join(f"{each.dtype.name} {wording.shape(each.shape)}" for each in (odd.original, odd.mask))
    return f"The parts of {odd.key} are {kinds}: torch never writes such a pair, and nothing is computed from them."


@judges(Turn.FORM)
def of_parts(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Originals and masks are on one side, and plain weights on the other."""
    for change in changes(rest.missing, rest.unexpected):
        if change.here is WeightForm.PRUNED and change.there is WeightForm.PLAIN:
            meaning = (
                "the file was saved from a model while it was pruned (weight_orig and weight_mask, whose product is the"
                " weight), and the model is not"
            )
            yield change.cause(meaning, Repair.SAFE)
        elif change.there is WeightForm.PRUNED and change.here is WeightForm.PLAIN:
            meaning = "the model is pruned (weight_orig and weight_mask), and the file was saved from one that is not"
            yield change.cause(meaning, Repair.BY_HAND, (load_before("the model is pruned"),), code="")
