"""Weight norm is written in the other of its two formats.

What it means
    ``torch.nn.utils.weight_norm`` keeps ``weight_g`` and ``weight_v``; ``torch.nn.utils.parametrizations.weight_norm``,
    which replaces it since torch 2.1, keeps the same two as ``parametrizations.weight.original0`` and ``original1``.

Why it matters
    torch translates the old names when they are loaded into the new API, but never the new ones into the old; and
    wav2vec2, hubert, encodec and many vocoders changed from one to the other.

What you see
    Missing key(s) in state_dict: "conv.weight_g", "conv.weight_v".
    Unexpected key(s) in state_dict: "conv.parametrizations.weight.original0", …

How it is found
    Only with a reference, which decides the direction: pairs of these names with the shapes that the target wants.

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

_OLD = {"conv.weight_g": T((4, 1, 1)), "conv.weight_v": T((4, 3, 5)), "conv.bias": T((4,))}
_NEW = {
    "conv.bias": T((4,)),
    "conv.parametrizations.weight.original0": T((4, 1, 1)),
    "conv.parametrizations.weight.original1": T((4, 3, 5)),
}
SICK = (
    Example("the new format for the old", _NEW, like=_OLD),
    Example("the old format for the new", _OLD, like=_NEW),
)
HEALTHY = (Example("the same format", _NEW, like=_NEW), Example("the old one for the old", _OLD, like=_OLD))


@rule("N412", "weightnorm-format", Severity.ERROR)
def weightnorm_format(comparison: Comparison) -> Iterator[Problem]:
    """One step of the chain."""
    yield from moved(
        comparison,
        "N412",
        "Weight norm has two formats: weight_g and weight_v, or parametrizations.weight.original0 and original1.",
    )
