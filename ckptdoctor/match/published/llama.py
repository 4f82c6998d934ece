"""Describes Llama of Meta, torchtune and transformers. Rows of queries and keys are in pairs in the first two.

Meta and torchtune turn neighbouring numbers of a head by one angle (``view_as_complex`` of pairs), transformers turns
a number of the first half with its fellow of the second half (``rotate_half``). So the rows of queries and keys are
permuted in each head. Mistral's own files, and Gemma of torchtune, are laid out as Meta's Llama and torchtune's.
"""

from __future__ import annotations

from ckptdoctor.match.published.table import KEYS, QUERIES, Published, Row, below, layer, row

_W = ("weight",)
_LEFT = ("rope.freqs", "layers.{}.self_attn.rotary_emb.inv_freq", "model.layers.{}.self_attn.rotary_emb.inv_freq")


def _body(
    queries: str, keys: str, values: str, out: str, mlp: str, before: str, after: str, last: str
) -> tuple[Row, ...]:
    at, there = "layers.{}.", "layers.{}."
    return (
        *layer("tok_embeddings", "embed_tokens", _W),
        *layer(at + queries, there + "self_attn.q_proj", _W, QUERIES),
        *layer(at + keys, there + "self_attn.k_proj", _W, KEYS),
        *layer(at + values, there + "self_attn.v_proj", _W),
        *layer(at + out, there + "self_attn.o_proj", _W),
        *layer(f"{at}{mlp}.w1", there + "mlp.gate_proj", _W),
        *layer(f"{at}{mlp}.w2", there + "mlp.down_proj", _W),
        *layer(f"{at}{mlp}.w3", there + "mlp.up_proj", _W),
        row(at + before, there + "input_layernorm.weight"),
        row(at + after, there + "post_attention_layernorm.weight"),
        row(last, "norm.weight"),
    )


_META = _body(
    *("attention.wq", "attention.wk", "attention.wv", "attention.wo", "feed_forward"),
    *("attention_norm.weight", "ffn_norm.weight", "norm.weight"),
)
_TUNE = _body(
    *("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.output_proj", "mlp"),
    *("sa_norm.scale", "mlp_norm.scale", "norm.scale"),
)
_HEAD = layer("output", "lm_head", _W)
_HF = "transformers' Llama"
_SCRIPT = "transformers (01cc9cd), models/llama/convert_llama_weights_to_hf.py"
_TORCHTUNE = "torchtune 0.6.1, models/convert_weights.py"


def _to_tune(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return Meta's keys with torchtune's: both have the same order of rows."""
    tune = {each.other: each.one for each in _TUNE}
    return tuple([Row(each.one, tune[each.other]) for each in rows])


LLAMA = (
    Published("Meta's Llama", _HF, _SCRIPT, (*below("model.", _META), *_HEAD), _LEFT),
    Published("Meta's Llama", f"{_HF} without its head", _SCRIPT, (*_META, *_HEAD), _LEFT),
    Published("torchtune's Llama", _HF, _TORCHTUNE, (*below("model.", _TUNE), *_HEAD), _LEFT),
    Published("torchtune's Llama", f"{_HF} without its head", _TORCHTUNE, (*_TUNE, *_HEAD), _LEFT),
    Published(
        "Meta's Llama",
        "torchtune's Llama",
        _TORCHTUNE,
        (*_to_tune(_META), row("output.weight", "output.weight")),
        _LEFT,
    ),
)
