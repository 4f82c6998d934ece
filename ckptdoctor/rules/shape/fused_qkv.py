"""Queries, keys and values are in one tensor on one side and apart on the other.

What it means
    Attention has three projections. Some implementations hold them in one tensor (``in_proj_weight``, ``qkv``,
    ``Wqkv``, ``c_attn``, ``query_key_value``), others in three (``q_proj``, ``k_proj``, ``v_proj``).

Why it matters
    ``load_state_dict`` fails, or with ``strict=False`` leaves attention random without a word.

What you see
    Missing key(s) in state_dict: "layers.0.attn.q_proj.weight", "layers.0.attn.k_proj.weight", …
    Unexpected key(s) in state_dict: "layers.0.attn.qkv.weight", …

How it is found
    Only with a reference: at one place in the model a fused name is left over and the three names of the parts are
    missing, or the reverse, and the shapes add up.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER --qkv-layout q-k-v``, and ``--heads N`` for layouts that go head by head.
    Not without that word: in which order the rows lie (all queries, then all keys, then all values; head by head; group
    by group) differs between libraries, and shapes do not show it. A wrong order loads and gives nonsense.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.facts.alignment import Comparison
from ckptdoctor.facts.shapes.sorting import shapes
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.fusing import fused_problem

_BODY = {"norm.weight": T((4,)), "mlp.fc.weight": T((16, 4)), "mlp.proj.weight": T((4, 16)), "head.weight": T((2, 4))}
_FUSED = {"layers.0.attn.qkv.weight": T((12, 4)), "layers.0.attn.qkv.bias": T((12,))}
_APART: dict[str, object] = {
    f"layers.0.attn.{name}_proj.{leaf}": T((4, 4) if leaf == "weight" else (4,))
    for name in "qkv"
    for leaf in ("weight", "bias")
}
SICK = (
    Example("fused here, apart there", {**_BODY, **_FUSED}, like={**_BODY, **_APART}),
    Example("apart here, fused there", {**_BODY, **_APART}, like={**_BODY, **_FUSED}),
    Example(
        "fewer keys and values than queries",
        {**_BODY, "layers.0.attn.Wqkv.weight": T((8, 4))},
        like={
            **_BODY,
            "layers.0.self_attn.q_proj.weight": T((4, 4)),
            "layers.0.self_attn.k_proj.weight": T((2, 4)),
            "layers.0.self_attn.v_proj.weight": T((2, 4)),
        },
    ),
)
HEALTHY = (
    Example("fused on both sides", {**_BODY, **_FUSED}, like={**_BODY, **_FUSED}),
    Example(
        "shapes that do not add up",
        {**_BODY, "layers.0.attn.qkv.weight": T((10, 4))},
        like={**_BODY, **_APART},
    ),
    Example(
        "no keys among the missing",
        {**_BODY, **_FUSED},
        like={**_BODY, "layers.0.attn.q_proj.weight": T((4, 4)), "layers.0.attn.v_proj.weight": T((4, 4))},
    ),
)

_LAYOUTS = (
    "The shapes do not show in which order the rows lie: q-k-v (all queries, then all keys, then all values: GPT-2, "
    "nn.MultiheadAttention), k-v-q, per-head (the query, key and value of one head after another: GPT-NeoX, BLOOM), or "
    "grouped (the queries of a group, then its key and value: Megatron, Falcon). Look it up where the checkpoint comes "
    "from, and say it with --qkv-layout beside --auto: a wrong one loads without a word and gives nonsense."
)


@rule("S507", "fused-qkv", Severity.ERROR)
def fused_qkv(comparison: Comparison) -> Iterator[Problem]:
    """Projections of attention that are fused on one side only."""
    yield from fused_problem(comparison, shapes(comparison).qkv, "the projections of attention", _LAYOUTS)
