"""Gate and up projection are in one tensor on one side and apart on the other.

What it means
    Gated feed-forward layers (SwiGLU) have two projections of the input. Some implementations hold them in one tensor
    (``gate_up_proj``, ``w13``, ``w12``), others in two (``gate_proj`` and ``up_proj``, ``w1`` and ``w3``).

Why it matters
    ``load_state_dict`` fails, or with ``strict=False`` leaves these layers random without a word.

What you see
    Missing key(s) in state_dict: "layers.0.mlp.gate_proj.weight", "layers.0.mlp.up_proj.weight", …
    Unexpected key(s) in state_dict: "layers.0.mlp.gate_up_proj.weight", …

How it is found
    Only with a reference: at one place in the model a fused name is left over and the two names of the parts are
    missing, or the reverse, and the shapes add up.

Repair
    None without a word about the order: most libraries put the gate first, some the other way round or row by row, and
    shapes do not show it. A wrong order loads and gives nonsense.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.facts.alignment import Comparison
from ckptdoctor.facts.shapes.sorting import shapes
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.fusing import fused_problem

_BODY = {
    "layers.0.norm.weight": T((4,)),
    "layers.0.attn.o_proj.weight": T((4, 4)),
    "layers.0.mlp.down_proj.weight": T((4, 6)),
}
_FUSED = {"layers.0.mlp.gate_up_proj.weight": T((12, 4))}
_APART = {"layers.0.mlp.gate_proj.weight": T((6, 4)), "layers.0.mlp.up_proj.weight": T((6, 4))}
SICK = (
    Example("fused here, apart there", {**_BODY, **_FUSED}, like={**_BODY, **_APART}),
    Example("apart here, fused there", {**_BODY, **_APART}, like={**_BODY, **_FUSED}),
)
HEALTHY = (
    Example("fused on both sides", {**_BODY, **_FUSED}, like={**_BODY, **_FUSED}),
    Example(
        "a gate of another size",
        {**_BODY, **_FUSED},
        like={**_BODY, **_APART, "layers.0.mlp.up_proj.weight": T((7, 4))},
    ),
)


@rule("S508", "fused-gate-up", Severity.ERROR)
def fused_gate_up(comparison: Comparison) -> Iterator[Problem]:
    """Gated projections that are fused on one side only."""
    yield from fused_problem(
        comparison,
        shapes(comparison).gates,
        "gate and up projection",
        "The shapes do not show which comes first: mostly the gate, but not everywhere. Look it up where the "
        "checkpoint comes from, and split or join along the rows: a wrong order loads without a word and gives "
        "nonsense.",
    )
