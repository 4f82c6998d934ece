"""Weight norm is stored in a different format from the target's: one of its two formats, or the plain weight.

Meaning
    ``torch.nn.utils.weight_norm`` keeps ``weight_g`` and ``weight_v``; ``torch.nn.utils.parametrizations.weight_norm``,
    which replaced it in torch 2.1, keeps the same two as ``parametrizations.weight.original0`` and ``original1``. A
    module without the norm, or one that it was removed from, keeps the ``weight`` that is computed from them.

Why it matters
    torch translates the old names when they are loaded into the new API, but never the reverse; and wav2vec2, hubert,
    encodec and many vocoders changed from one to the other.

Symptoms
    Missing key(s) in state_dict: "conv.weight_g", "conv.weight_v".
    Unexpected key(s) in state_dict: "conv.parametrizations.weight.original0", …

Detection
    Only with a reference, which decides the direction: pairs of these names with the shapes that the target expects; or
    both names of a pair, where the target has the plain one in the shape of ``weight_v``.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER``: keys are renamed one to one, in ``_metadata`` and an optimizer's
    ``param_names`` as well; no value changes. A plain weight is computed with ``--unsafe-fixes``: ``v * g / ‖v‖``,
    along the dimension that the shape of g shows, in float64 and rounded once. torch computes in the weight's own
    dtype, whose last digits differ. g and v cannot be recovered from it, and an optimizer's state for them no longer
    fits.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.meanings import WEIGHT
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Turn, judges
from ckptdoctor.rules.kit.moving import moved_problems
from ckptdoctor.rules.kit.weight_forms import WeightForm
from ckptdoctor.rules.naming.plain_weights import computed, kept_apart

_OLD = {"conv.weight_g": T((4, 1, 1)), "conv.weight_v": T((4, 3, 5)), "conv.bias": T((4,))}
_NEW = {
    "conv.bias": T((4,)),
    "conv.parametrizations.weight.original0": T((4, 1, 1)),
    "conv.parametrizations.weight.original1": T((4, 3, 5)),
}
_PLAIN = {"conv.weight": T((4, 3, 5)), "conv.bias": T((4,))}
SICK = (
    Example("the new format for the old", _NEW, like=_OLD),
    Example("the old format for the new", _OLD, like=_NEW),
    Example("the old format for a plain weight", _OLD, like=_PLAIN),
    Example("the new format for a plain weight", _NEW, like=_PLAIN),
)
HEALTHY = (
    Example("the same format", _NEW, like=_NEW),
    Example("the old one for the old", _OLD, like=_OLD),
    Example("a weight with a different shape", _OLD, like={**_PLAIN, "conv.weight": T((4, 3, 7))}),
)


@rule("N412", "weightnorm-format", Severity.ERROR)
def weightnorm_format(comparison: Comparison) -> Iterator[Problem]:
    """Report one step of the chain, or weights that are computed."""
    yield from moved_problems(
        comparison,
        "N412",
        "Weight norm has two formats: weight_g and weight_v, or parametrizations.weight.original0 and original1.",
    )
    yield from computed(comparison, WEIGHT)


@judges(Turn.FORM)
def of_parts(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Parts of weights are on one side, and the weights or other parts on the other."""
    yield from kept_apart(rest, "weight norm", WeightForm.OLD_WEIGHT_NORM, WeightForm.NEW_WEIGHT_NORM)
