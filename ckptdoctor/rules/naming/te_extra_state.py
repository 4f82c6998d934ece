"""Modules saved extra state (``_extra_state``) that the target does not know, or the other way round.

What it means
    A module can put anything into the state dict under ``_extra_state`` (``Module.get_extra_state``). Layers of
    Transformer Engine, and so those of Megatron, keep the scaling factors of their fp8 formats there, and an empty
    tensor where they do not use fp8. The same layers made of plain torch have no such key.

Why it matters
    ``load_state_dict`` fails, although every weight is there.

What you see
    Unexpected key(s) in state_dict: "decoder.layers.0.self_attention.linear_qkv._extra_state", …
    Missing key(s) in state_dict: "decoder.layers.0.mlp.linear_fc1._extra_state", …

How it is found
    Only with a reference: tensors whose last token is exactly ``_extra_state`` on one side only. Extra state that is no
    tensor is not compared, because references do not tell of it.

Repair
    What the target does not want is dropped: ``ckptdoctor fix FILE --drop '*._extra_state'``. Confirmed: a layer
    without extra state has nothing to do with it. What the target misses cannot be made up;
    ``load_state_dict(…, strict=False)`` leaves it as the target made it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.facts.alignment import Comparison
from ckptdoctor.facts.leftovers import leftovers
from ckptdoctor.findings import Severity
from ckptdoctor.rules.dropping import missing_problem, unexpected_problem
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule

_NET = {"mlp.linear_fc1.weight": T((8, 4)), "mlp.linear_fc2.weight": T((4, 8))}
_EXTRA = {"mlp.linear_fc1._extra_state": T((16,), "uint8"), "mlp.linear_fc2._extra_state": T((0,), "uint8")}
SICK = (
    Example("Transformer Engine for plain layers", {**_NET, **_EXTRA}, like=_NET),
    Example("plain layers for Transformer Engine", {"model": _NET}, like={"model": {**_NET, **_EXTRA}}),
)
HEALTHY = (
    Example("extra state on both sides", {**_NET, **_EXTRA}, like={**_NET, **_EXTRA}),
    Example("a longer name", {**_NET, "mlp.my_extra_state": T((4,))}, like=_NET),
)


@rule("N421", "te-extra-state", Severity.WARNING)
def te_extra_state(comparison: Comparison) -> Iterator[Problem]:
    """Extra state of modules, on one side only."""
    found = leftovers(comparison)
    source = comparison.reference.source
    if found.extra:
        yield unexpected_problem(
            comparison,
            found.extra,
            f"{'is' if len(found.extra) == 1 else 'are'} extra state of modules, which {source} does not load",
            "The saved layers wrote more than tensors of their own (get_extra_state), as Transformer Engine's do for "
            "fp8; the target's layers do not.",
        )
    if found.extra_missing:
        yield missing_problem(
            comparison,
            found.extra_missing,
            f"{'is' if len(found.extra_missing) == 1 else 'are'} extra state of modules, which the file does not hold",
            "The target's layers read more than tensors of their own (set_extra_state), as Transformer Engine's do for "
            "fp8; the saved layers wrote none.",
            "load_state_dict(…, strict=False) leaves it as the target made it; see that nothing else is missing.",
        )
