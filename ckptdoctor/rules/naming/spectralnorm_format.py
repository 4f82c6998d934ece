"""Spectral norm is written in the other of its two formats.

What it means
    ``torch.nn.utils.spectral_norm`` keeps ``weight_orig``, ``weight_u`` and ``weight_v``;
    ``torch.nn.utils.parametrizations.spectral_norm`` keeps the same as ``parametrizations.weight.original``,
    ``parametrizations.weight.0._u`` and ``0._v``.

Why it matters
    torch translates neither into the other: loading fails.

What you see
    Missing key(s) in state_dict: "conv.weight_orig", "conv.weight_u", "conv.weight_v".
    Unexpected key(s) in state_dict: "conv.parametrizations.weight.original", …

How it is found
    Only with a reference, which decides the direction: these names with the shapes that the target wants.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER``: keys are renamed one to one, in ``_metadata`` and an optimizer's
    ``param_names`` as well; no value changes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.facts.alignment import Comparison
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.moving import moved

_OLD = {"conv.weight_orig": T((4, 3)), "conv.weight_u": T((4,)), "conv.weight_v": T((3,)), "conv.bias": T((4,))}
_NEW = {
    "conv.bias": T((4,)),
    "conv.parametrizations.weight.original": T((4, 3)),
    "conv.parametrizations.weight.0._u": T((4,)),
    "conv.parametrizations.weight.0._v": T((3,)),
}
SICK = (
    Example("the new format for the old", _NEW, like=_OLD),
    Example("the old format for the new", _OLD, like=_NEW),
)
HEALTHY = (Example("the same format", _NEW, like=_NEW),)


@rule("N413", "spectralnorm-format", Severity.ERROR)
def spectralnorm_format(comparison: Comparison) -> Iterator[Problem]:
    """One step of the chain."""
    yield from moved(
        comparison,
        "N413",
        "Spectral norm has two formats: weight_orig, weight_u and weight_v, or parametrizations.weight.",
    )
