"""The letters ``module.`` were taken out of the middle of names.

What it means
    ``key.replace("module.", "")`` was meant to strip the prefix of DataParallel, and took the same letters out of the
    middle as well: ``mlp_module.layer0`` became ``mlp_layer0``.

Why it matters
    ``load_state_dict`` fails; with ``strict=False`` these layers keep their random weights.

What you see
    Missing key(s) in state_dict: "mlp_module.layer0.weight".
    Unexpected key(s) in state_dict: "mlp_layer0.weight".

How it is found
    Only with a reference: its keys, with ``module.`` taken out wherever it stands, are the keys here, shape by shape.

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

_WANTED = {"mlp_module.layer0.weight": T((4, 3)), "mlp_module.layer1.weight": T((2, 4)), "head.weight": T((5, 2))}
_HERE = {key.replace("module.", ""): value for key, value in _WANTED.items()}
SICK = (Example("stripped in the wrong way", _HERE, like=_WANTED),)
HEALTHY = (
    Example("the same keys", _WANTED, like=_WANTED),
    Example("another shape", {**_HERE, "mlp_layer0.weight": T((4, 9))}, like={"mlp_module.layer0.weight": T((4, 3))}),
)


@rule("N403", "mangled-by-naive-replace", Severity.ERROR)
def mangled_by_naive_replace(comparison: Comparison) -> Iterator[Problem]:
    """One step of the chain."""
    yield from moved(
        comparison,
        "N403",
        'Somebody stripped "module." with key.replace(), which also takes it out of the middle of names.',
    )
