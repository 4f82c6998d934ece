"""Describes what llama.cpp calls the tensors of transformers' models, and how its converter changes their values.

Source: ``gguf/tensor_mapping.py`` of llama.cpp's gguf package 0.19, and ``modify_tensors`` of the models in
``convert_hf_to_gguf.py``: Llama (and Mistral, Mixtral), Qwen 2 and 3, Gemma 1 to 3, GPT-2, Phi 2 and 3. Keys of
transformers are written here without what precedes their layers (``model.``, ``transformer.``). The tables are not in
the catalogue, for nothing is renamed by them: they say which tensors are compared.
"""

from __future__ import annotations

from collections.abc import Iterable

from ckptdoctor.match.published.table import ROWS, STACKED, TURNED, Row, layer, row

_AT, _OURS, _GPT = "blk.{}.", "layers.{}.", "h.{}."
_BOTH, _W = ("weight", "bias"), ("weight",)


def _block(names: Iterable[tuple[str, str]], lead: str = _OURS) -> tuple[Row, ...]:
    return tuple([each for one, other in names for each in layer(_AT + one, lead + other, _BOTH)])


def _conv1d(one: str, other: str) -> tuple[Row, ...]:
    """Return the rows of GPT-2's ``Conv1D``, whose matrices have their inputs first."""
    weight = row(f"{_AT}{one}.weight", f"{_GPT}{other}.weight", TURNED)
    return weight, row(f"{_AT}{one}.bias", f"{_GPT}{other}.bias")


def _experts(place: str, gate: str, down: str, up: str) -> tuple[Row, ...]:
    parts = (("ffn_gate_exps", gate), ("ffn_down_exps", down), ("ffn_up_exps", up))
    return tuple([row(f"{_AT}{one}.weight", f"{_OURS}{place}.{{}}.{other}.weight", STACKED) for one, other in parts])


_ENDS = (
    *[each for key in ("embed_tokens", "wte") for each in layer("token_embd", key, _W)],
    *layer("position_embd", "wpe", _W),
    *[each for key in ("norm", "ln_f", "final_layernorm") for each in layer("output_norm", key)],
    *layer("output", "lm_head"),
    # tied, and written twice or only once
    *[row("output.weight", f"{key}.weight") for key in ("embed_tokens", "wte")],
    row("token_embd.weight", "lm_head.weight"),
)
_LAYERS = _block(
    (
        ("attn_norm", "input_layernorm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("attn_output", "self_attn.dense"),
        ("attn_q_norm", "self_attn.q_norm"),
        ("attn_k_norm", "self_attn.k_norm"),
        ("attn_qkv", "self_attn.qkv_proj"),
        ("ffn_norm", "post_attention_layernorm"),
        ("ffn_norm", "pre_feedforward_layernorm"),
        ("post_attention_norm", "post_attention_layernorm"),
        ("post_ffw_norm", "post_feedforward_layernorm"),
        ("ffn_gate", "mlp.gate_proj"),
        ("ffn_up", "mlp.up_proj"),
        ("ffn_up", "mlp.gate_up_proj"),
        ("ffn_up", "mlp.fc1"),
        ("ffn_down", "mlp.down_proj"),
        ("ffn_down", "mlp.fc2"),
        ("ffn_gate_inp", "block_sparse_moe.gate"),
        ("ffn_gate_inp", "mlp.gate"),
        ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
        ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
        ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
        ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
    )
)
_FUSED = tuple(
    [
        row(f"{_AT}attn_qkv.{leaf}", tuple([f"{_OURS}self_attn.{part}_proj.{leaf}" for part in "qkv"]), ROWS)
        for leaf in _BOTH
    ]
)
_GPT2 = (
    *_block((("attn_norm", "ln_1"), ("ffn_norm", "ln_2")), _GPT),
    *_conv1d("attn_qkv", "attn.c_attn"),
    *_conv1d("attn_output", "attn.c_proj"),
    *_conv1d("ffn_up", "mlp.c_fc"),
    *_conv1d("ffn_down", "mlp.c_proj"),
)

LLAMA_CPP: tuple[Row, ...] = (
    *_ENDS,
    *_LAYERS,
    *_FUSED,
    *_GPT2,
    *_experts("block_sparse_moe.experts", "w1", "w2", "w3"),
    *_experts("mlp.experts", "gate_proj", "down_proj", "up_proj"),
)

# in which rows of each head are put in pairs (``LlamaModel.permute``): queries, keys, and their biases
PERMUTED = frozenset({"llama", "granite", "granitemoe", "smollm3", "arcee", "deci"})
# in which one is added to the factors of norms, so that a plain norm has them right
SHIFTED = frozenset({"gemma", "gemma2", "gemma3", "nemotron", "qwen3next"})
# in which neither is done
PLAIN = frozenset({"qwen2", "qwen2moe", "qwen3", "qwen3moe", "phi2", "phi3", "gpt2", "starcoder2", "stablelm"})

ROTARY_KEYS = ("attn_q.weight", "attn_k.weight", "attn_q.bias", "attn_k.bias")
SHIFTED_KEYS = ("norm.weight",)
