"""Describes Qwen2 of torchtune and of transformers: other names, and no other order of rows.

torchtune gives it rotary embeddings of transformers' kind, so that nothing is permuted as in its Llama, whose keys are
the same except for the biases of queries, keys and values. Those tell the two apart: the first layer must have them.
"""

from __future__ import annotations

from ckptdoctor.match.published.table import Published, Row, below, layer, row

_W, _B = ("weight",), ("bias",)
_SOURCE = "torchtune 0.6.1, models/qwen2/_convert_weights.py"
_LEFT = ("layers.{}.self_attn.rotary_emb.inv_freq", "model.layers.{}.self_attn.rotary_emb.inv_freq")
_AT = "layers.{}."


def _body() -> tuple[Row, ...]:
    attention = [
        each for part in "qkv" for each in layer(f"{_AT}attn.{part}_proj", f"{_AT}self_attn.{part}_proj", (*_W, *_B))
    ]
    return (
        row("layers.0.attn.q_proj.bias", "layers.0.self_attn.q_proj.bias"),
        *layer("tok_embeddings", "embed_tokens", _W),
        *attention,
        *layer(_AT + "attn.output_proj", _AT + "self_attn.o_proj", _W),
        *layer(_AT + "mlp.w1", _AT + "mlp.gate_proj", _W),
        *layer(_AT + "mlp.w2", _AT + "mlp.down_proj", _W),
        *layer(_AT + "mlp.w3", _AT + "mlp.up_proj", _W),
        row(_AT + "sa_norm.scale", _AT + "input_layernorm.weight"),
        row(_AT + "mlp_norm.scale", _AT + "post_attention_layernorm.weight"),
        row("norm.scale", "norm.weight"),
    )


_HEAD = layer("output", "lm_head", _W)

QWEN = (
    Published("torchtune's Qwen2", "transformers' Qwen2", _SOURCE, (*below("model.", _body()), *_HEAD), _LEFT),
    Published("torchtune's Qwen2", "transformers' Qwen2 without its head", _SOURCE, _body(), _LEFT),
)
