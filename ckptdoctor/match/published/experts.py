"""Describes mixtures of experts of transformers: apart, as its files hold them, and stacked, as its models do.

An expert's gate comes before its up projection along the rows of its slice, and experts come by their numbers. What
both sides call alike is as it is. DeepSeek, GLM, OLMoE and others have the names of Qwen's mixture.
"""

from __future__ import annotations

from ckptdoctor.match.published.table import STACKED, Published, Row, row

_SOURCE = "transformers 5.23, conversion_mapping.py"
_EMBEDDING = row("embed_tokens.weight", "embed_tokens.weight")


def _experts(apart: str, gate: str, up: str, down: str) -> tuple[Row, ...]:
    lead, stacked = f"layers.{{}}.{apart}.experts.{{}}.", "layers.{}.mlp.experts."
    return (
        row((f"{lead}{gate}.weight", f"{lead}{up}.weight"), f"{stacked}gate_up_proj", STACKED),
        row(f"{lead}{down}.weight", f"{stacked}down_proj", STACKED),
    )


_MIXTRAL = (
    _EMBEDDING,
    *_experts("block_sparse_moe", "w1", "w3", "w2"),
    row("layers.{}.block_sparse_moe.gate.weight", "layers.{}.mlp.gate.weight"),
)

EXPERTS = (
    Published("Mixtral with separate experts", "transformers' Mixtral", _SOURCE, _MIXTRAL, rest=True),
    Published(
        "Qwen's mixture with separate experts",
        "transformers' mixture with stacked experts",
        _SOURCE,
        (_EMBEDDING, *_experts("mlp", "gate_proj", "up_proj", "down_proj")),
        rest=True,
    ),
)
