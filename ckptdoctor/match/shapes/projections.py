"""What projections are called that libraries hold in one tensor or apart."""

from __future__ import annotations

from ckptdoctor.noun import noun


@noun
class Kind:
    """What is fused: the names that the parts go by, in their usual order, and those of the fused one."""

    parts: tuple[tuple[str, ...], ...]
    fused: frozenset[str]


QKV = Kind(
    (
        ("q_proj", "k_proj", "v_proj"),
        ("query", "key", "value"),
        ("wq", "wk", "wv"),
        ("to_q", "to_k", "to_v"),
        ("q_lin", "k_lin", "v_lin"),
        ("query_proj", "key_proj", "value_proj"),
        ("linear_q", "linear_k", "linear_v"),
        ("q", "k", "v"),
    ),
    frozenset(
        ("in_proj", "qkv", "Wqkv", "wqkv", "c_attn", "query_key_value", "qkv_proj", "to_qkv", "W_pack", "linear_qkv")
    ),
)
GATE_UP = Kind(
    (("gate_proj", "up_proj"), ("w1", "w3"), ("w1", "w2"), ("gate", "up"), ("wi_0", "wi_1")),
    frozenset(("gate_up_proj", "gate_up", "w13", "w12", "wi", "gate_and_up_proj", "linear_fc1")),
)
