"""Spectral norm is stored in a different format from the target's: one of its two formats, or the plain weight.

Meaning
    ``torch.nn.utils.spectral_norm`` keeps ``weight_orig``, ``weight_u`` and ``weight_v``;
    ``torch.nn.utils.parametrizations.spectral_norm`` keeps the same as ``parametrizations.weight.original``,
    ``parametrizations.weight.0._u`` and ``0._v``. A module without the norm, or one that it was removed from, keeps the
    ``weight`` that is computed from them.

Why it matters
    torch translates neither into the other: loading fails.

Symptoms
    Missing key(s) in state_dict: "conv.weight_orig", "conv.weight_u", "conv.weight_v".
    Unexpected key(s) in state_dict: "conv.parametrizations.weight.original", …

Detection
    Only with a reference, which decides the direction: these names with the shapes that the target expects; or all
    three names, where the target has the plain one in the shape of ``weight_orig``.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER``: keys are renamed one to one, in ``_metadata`` and an optimizer's
    ``param_names`` as well; no value changes. A plain weight is computed with ``--unsafe-fixes``: the original divided
    by ``uᵀ·W·v``, in float64 and rounded once. Where a convolution has as many inputs as outputs, u and v themselves
    show whether it is a transposed one; where they do not, nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.meanings import SPECTRAL
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Turn, judges
from ckptdoctor.rules.kit.moving import moved_problems
from ckptdoctor.rules.kit.weight_forms import WeightForm
from ckptdoctor.rules.naming.plain_weights import computed, kept_apart

_OLD = {"conv.weight_orig": T((4, 3)), "conv.weight_u": T((4,)), "conv.weight_v": T((3,)), "conv.bias": T((4,))}
_NEW = {
    "conv.bias": T((4,)),
    "conv.parametrizations.weight.original": T((4, 3)),
    "conv.parametrizations.weight.0._u": T((4,)),
    "conv.parametrizations.weight.0._v": T((3,)),
}
_PLAIN = {"conv.weight": T((4, 3)), "conv.bias": T((4,))}
SICK = (
    Example("the new format for the old", _NEW, like=_OLD),
    Example("the old format for the new", _OLD, like=_NEW),
    Example("the old format for a plain weight", _OLD, like=_PLAIN),
    Example("the new format for a plain weight", _NEW, like=_PLAIN),
)
HEALTHY = (
    Example("the same format", _NEW, like=_NEW),
    Example("a weight with a different shape", _OLD, like={**_PLAIN, "conv.weight": T((4, 5))}),
)


@rule("N413", "spectralnorm-format", Severity.ERROR)
def spectralnorm_format(comparison: Comparison) -> Iterator[Problem]:
    """Report one step of the chain, or weights that are computed."""
    yield from moved_problems(
        comparison,
        "N413",
        "Spectral norm has two formats: weight_orig, weight_u and weight_v, or parametrizations.weight.",
    )
    yield from computed(comparison, SPECTRAL)


@judges(Turn.FORM)
def of_parts(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Parts of weights are on one side, and the weights or other parts on the other."""
    yield from kept_apart(rest, "spectral norm", WeightForm.OLD_SPECTRAL_NORM, WeightForm.NEW_SPECTRAL_NORM)
