"""Describes Phi-3 of transformers, whose queries, keys and values are one projection, and gate and up another.

torchtune has them apart, and so have the files that were made of it for the code of Llama, whose rotary embeddings it
shares: nothing is permuted. All queries come first, then all keys, then all values (``Phi3Attention.forward``); where
heads share keys and values, these have fewer rows, and the shapes of the parts say how many.
"""

from __future__ import annotations

from ckptdoctor.match.published.table import GROUPED, ROWS, Published, Row, below, layer, row

_W = ("weight",)
_AT = "layers.{}."
_GATED = _AT + "mlp.gate_up_proj.weight"
_QKV = _AT + "self_attn.qkv_proj.weight"


def _fused(attention: str, gate: str, up: str) -> tuple[Row, ...]:
    return (
        row(tuple([f"{_AT}{attention}.{part}_proj.weight" for part in "qkv"]), _QKV, GROUPED),
        row((f"{_AT}mlp.{gate}.weight", f"{_AT}mlp.{up}.weight"), _GATED, ROWS),
    )


_TUNE = (
    *layer("tok_embeddings", "embed_tokens", _W),
    *_fused("attn", "w1", "w3"),
    *layer(_AT + "attn.output_proj", _AT + "self_attn.o_proj", _W),
    *layer(_AT + "mlp.w2", _AT + "mlp.down_proj", _W),
    row(_AT + "sa_norm.scale", _AT + "input_layernorm.weight"),
    row(_AT + "mlp_norm.scale", _AT + "post_attention_layernorm.weight"),
    row("norm.scale", "norm.weight"),
)
_LLAMA = (
    *layer("embed_tokens", "embed_tokens", _W),
    *_fused("self_attn", "gate_proj", "up_proj"),
    *layer(_AT + "self_attn.o_proj", _AT + "self_attn.o_proj", _W),
    *layer(_AT + "mlp.down_proj", _AT + "mlp.down_proj", _W),
    *layer(_AT + "input_layernorm", _AT + "input_layernorm", _W),
    *layer(_AT + "post_attention_layernorm", _AT + "post_attention_layernorm", _W),
    *layer("norm", "norm", _W),
)
_HEAD = layer("output", "lm_head", _W)

PHI = (
    Published(
        "torchtune's Phi-3",
        "transformers' Phi-3",
        "torchtune 0.6.1, models/phi3/_convert_weights.py",
        (*below("model.", _TUNE), *_HEAD),
    ),
    Published(
        "transformers' Llama",
        "transformers' Phi-3",
        "transformers 5.23, models/phi3/modeling_phi3.py",
        tuple(
            [Row(tuple([f"model.{key}" for key in each.one]), each.other, each.how) for each in below("model.", _LLAMA)]
        )
        + layer("lm_head", "lm_head", _W),
    ),
)
