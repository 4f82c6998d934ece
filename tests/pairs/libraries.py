"""The same network as another code base saves it: its names, and its values where that code base wants them.

Sources: the conversion scripts of transformers for Whisper, CLIP, Llama and ViT (timm), torch's MultiheadAttention.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

import torch

from tests.pairs.models import N, State
from tests.pairs.pair import Case, Family, Pair, case, pair

HEADS = 2


def _named(tensors: State, rules: Sequence[tuple[str, str]]) -> State:
    """The same tensors, the keys rewritten by each rule in turn."""
    found = {}
    for key, value in tensors.items():
        for pattern, new in rules:
            key = re.sub(pattern, new, key)
        found[key] = value
    return found


def _fused(tensors: State, parts: Sequence[str], whole: str) -> State:
    """Each run of these parts as one tensor, in the place of the first."""
    found = {}
    for key, value in tensors.items():
        which = next((part for part in parts if f".{part}." in key), None)
        if which is None:
            found[key] = value
        elif which == parts[0]:
            every = [tensors[key.replace(f".{which}.", f".{part}.")] for part in parts]
            found[key.replace(f".{which}.", f".{whole}.")] = torch.cat(every)
    return found


def whisper(rng: Random) -> Pair:
    """OpenAI's Whisper → transformers. The head is the embedding, which OpenAI does not save twice."""
    of = case(rng, "whisper")
    source = _named({key: value for key, value in of.truth.items() if key != "proj_out.weight"}, (
        (r"^model\.", ""), (r"\.layers\.", ".blocks."), ("fc1", "mlp.0"), ("fc2", "mlp.2"),
        ("self_attn_layer_norm", "attn_ln"), ("encoder_attn_layer_norm", "cross_attn_ln"),
        ("final_layer_norm", "mlp_ln"), ("self_attn", "attn"), ("encoder_attn", "cross_attn"),
        ("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"), ("out_proj", "out"),
        ("decoder.layer_norm", "decoder.ln"), ("encoder.layer_norm", "encoder.ln_post"),
        ("embed_tokens", "token_embedding"), ("embed_positions.weight", "positional_embedding"),
    ))  # fmt: skip
    return pair(of, rng, "OpenAI's Whisper", source)


def clip(rng: Random) -> Pair:
    """OpenAI's CLIP → transformers: fused projections; ``text_projection`` and ``proj`` are square and transposed."""
    of = case(rng, "clip")
    source = {}
    for key, value in of.truth.items():
        if "position_ids" not in key:
            turned = key in ("text_projection.weight", "visual_projection.weight")
            source[key] = value.T.contiguous() if turned else value
    fused = {}
    for key, value in source.items():
        found = re.fullmatch(r"(.*self_attn)\.q_proj\.(weight|bias)", key)
        if found is not None:
            where, leaf = found.groups()
            fused[f"{where}.in_proj_{leaf}"] = torch.cat([source[f"{where}.{p}_proj.{leaf}"] for p in "qkv"])
        elif not re.search(r"self_attn\.[kv]_proj", key):
            fused[key] = value
    named = _named(fused, (
        (r"^text_model\.encoder\.layers", "transformer.resblocks"),
        (r"^vision_model\.encoder\.layers", "visual.transformer.resblocks"), ("self_attn", "attn"),
        ("layer_norm1", "ln_1"), ("layer_norm2", "ln_2"), (r"mlp\.fc1", "mlp.c_fc"), (r"mlp\.fc2", "mlp.c_proj"),
        (r"^text_model\.embeddings\.token_embedding", "token_embedding"),
        (r"^text_model\.embeddings\.position_embedding\.weight", "positional_embedding"),
        (r"^text_model\.final_layer_norm", "ln_final"), (r"^text_projection\.weight", "text_projection"),
        (r"^visual_projection\.weight", "visual.proj"), (r"^vision_model\.pre_layrnorm", "visual.ln_pre"),
        (r"^vision_model\.post_layernorm", "visual.ln_post"),
        (r"^vision_model\.embeddings\.class_embedding", "visual.class_embedding"),
        (r"^vision_model\.embeddings\.patch_embedding", "visual.conv1"),
        (r"^vision_model\.embeddings\.position_embedding\.weight", "visual.positional_embedding"),
    ))  # fmt: skip
    return pair(of, rng, "OpenAI's CLIP", named)


def vit(rng: Random) -> Pair:
    """timm's ViT → transformers."""
    of = case(rng, "vit")
    source = _named(of.truth, (
        (r"^vit\.embeddings\.cls_token", "cls_token"), (r"^vit\.embeddings\.position_embeddings", "pos_embed"),
        (r"^vit\.embeddings\.patch_embeddings\.projection", "patch_embed.proj"), (r"^vit\.layernorm", "norm"),
        (r"^vit\.(encoder\.layer|layers)", "blocks"), (r"layernorm_before", "norm1"), ("layernorm_after", "norm2"),
        (r"attention\.(attention\.)?(query|q_proj)", "attn.q"), (r"attention\.(attention\.)?(key|k_proj)", "attn.k"),
        (r"attention\.(attention\.)?(value|v_proj)", "attn.v"),
        (r"attention\.(output\.dense|o_proj|out_proj)", "attn.proj"),
        (r"(intermediate\.dense|mlp\.fc1)", "mlp.fc1"), (r"(\d)\.(output\.dense|mlp\.fc2)", r"\1.mlp.fc2"),
        (r"^classifier", "head"),
    ))  # fmt: skip
    return pair(of, rng, "timm's ViT", _fused(source, "qkv", "qkv"))


def rotated(value: torch.Tensor, heads: int = HEADS) -> torch.Tensor:
    """Rows of a projection as Meta orders them for rotary embeddings: pairs instead of halves."""
    rows, width = value.shape
    return value.view(heads, 2, rows // heads // 2, width).transpose(1, 2).reshape(rows, width)


def llama(rng: Random) -> Pair:
    """Meta's Llama → transformers: rows of ``wq`` and ``wk`` are in another order."""
    of = case(rng, "llama", "mistral")
    turned = {key: rotated(value) if re.search(r"[qk]_proj\.weight", key) else value for key, value in of.truth.items()}
    source = _named(turned, (
        (r"^model\.", ""), (r"^embed_tokens", "tok_embeddings"), ("self_attn", "attention"), ("q_proj", "wq"),
        ("k_proj", "wk"), ("v_proj", "wv"), ("o_proj", "wo"), (r"mlp\.gate_proj", "feed_forward.w1"),
        (r"mlp\.down_proj", "feed_forward.w2"), (r"mlp\.up_proj", "feed_forward.w3"),
        ("post_attention_layernorm", "ffn_norm"), ("input_layernorm", "attention_norm"), (r"^lm_head", "output"),
    ))  # fmt: skip
    return pair(of, rng, "Meta's Llama", source)


def gpt2(rng: Random) -> Pair:
    """OpenAI's and minGPT's GPT-2: no ``transformer.``, or linear layers, whose square matrices are transposed."""
    of = case(rng, "gpt2")
    if rng.random() < 0.5:
        source = {key.removeprefix("transformer."): v for key, v in of.truth.items() if key != "lm_head.weight"}
        return pair(of, rng, "GPT-2 without its head", source)
    turned = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")
    source = {key: value.T.contiguous() if turned.search(key) else value for key, value in of.truth.items()}
    return pair(of, rng, "nanoGPT", source)


def _torch_layers(tensors: State) -> State:
    """``in_proj_weight`` apart, as q_proj, k_proj and v_proj."""
    found = {}
    for key, value in tensors.items():
        where, _, leaf = key.rpartition(".in_proj_")
        if not where:
            found[key] = value
            continue
        for part, each in zip("qkv", value.chunk(3), strict=True):
            found[f"{where}.{part}_proj.{leaf}"] = each.contiguous()
    return found


def fused(rng: Random) -> Pair:
    """torch's MultiheadAttention from three projections, or three projections from it."""
    of = case(rng, "transformer encoder", "transformer decoder")
    if rng.random() < 0.5:
        return pair(of, rng, "three projections", _torch_layers(of.truth))
    aim = Case("", _torch_layers(of.truth), _torch_layers(of.target))
    return pair(aim, rng, "one projection of three", of.truth)


def interleaved(rng: Random) -> Pair:
    """Queries, keys and values of each head together, as GPT-NeoX and BLOOM have them, for three projections."""
    of = case(rng, "attention", "blocks")
    parts = ("q_proj", "k_proj", "v_proj")
    source = {}
    for key, value in of.truth.items():
        which = next((part for part in parts if part in key), None)
        if which is None:
            source[key] = value
        elif which == "q_proj":
            every = [of.truth[key.replace("q_proj", part)].unflatten(0, (HEADS, N // HEADS)) for part in parts]
            name = rng.choice(("query_key_value", "qkv"))
            source[key.replace("q_proj", name)] = torch.stack(every, 1).flatten(0, 2)
    return pair(of, rng, "each head's q, k and v together", source)


def bert(rng: Random) -> Pair:
    """BERT as it was first published: gamma, beta, and heads under ``cls``."""
    of = case(rng, "bert", "bert masked", "bert classes")
    source = {re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", re.sub(r"LayerNorm\.bias$", "LayerNorm.beta", key)): v
              for key, v in of.truth.items()}  # fmt: skip
    return pair(of, rng, "the first BERT", source)


LIBRARIES: dict[str, Family] = {
    f"from {name}": each
    for name, each in {
        "OpenAI Whisper": whisper, "OpenAI CLIP": clip, "timm ViT": vit, "Meta Llama": llama, "other GPT-2": gpt2,
        "other attention": fused, "interleaved heads": interleaved, "first BERT": bert,
    }.items()
}  # fmt: skip
