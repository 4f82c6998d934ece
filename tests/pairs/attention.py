"""Projections of attention in one tensor or in three, where the names say whose they are; and where they do not."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import torch

from tests.pairs.libraries import HEADS, fused, joined, vit
from tests.pairs.models import N, State, fresh
from tests.pairs.pair import LAYOUT, MEANING, Case, Family, Pair, case, made_up, pair, retold, shuffled, under

_QKV = ("q_proj", "k_proj", "v_proj")
_GATED = ("gate_proj", "up_proj")


def phi(rng: Random) -> Pair:
    """Phi-3 as transformers has it, for the code of Llama or of torchtune; and back."""
    of = case(rng, "llama")
    tune = rng.random() < 0.5

    def apart(tensors: State) -> State:
        return _tuned(tensors) if tune else tensors

    def whole(tensors: State) -> State:
        return joined(joined(tensors, _QKV, "qkv_proj"), _GATED, "gate_up_proj")

    what = "torchtune's Phi-3" if tune else "a Llama"
    if rng.random() < 0.5:
        aim = Case("", apart(of.truth), apart(of.target))
        return pair(aim, rng, f"Phi-3 for {what}", under(rng.choice(("", "module.")), whole(of.truth)))
    return pair(Case("", whole(of.truth), whole(of.target)), rng, f"{what} for Phi-3", apart(of.truth))


def qwen(rng: Random) -> Pair:
    """Qwen2 of torchtune and of transformers: Llama's names, and biases that say that no row is permuted."""
    like = case(rng, "llama").truth
    biases = {key.replace("weight", "bias"): (N,) for key in like if re.search(r"[qkv]_proj\.weight", key)}
    of = made_up(rng, {**{key: tuple(value.shape) for key, value in like.items()}, **biases}, "Qwen2")
    if rng.random() < 0.5:
        return pair(of, rng, "torchtune's", _tuned(of.truth))
    return pair(Case("", _tuned(of.truth), _tuned(of.target)), rng, "for torchtune", of.truth)


def _tuned(tensors: State) -> State:
    words = {"embed_tokens": "tok_embeddings", "self_attn": "attn", "o_proj": "output_proj", "gate_proj": "w1",
             "down_proj": "w2", "up_proj": "w3", "lm_head": "output"}  # fmt: skip
    norms = (("post_attention_layernorm.weight", "mlp_norm.scale"), ("input_layernorm.weight", "sa_norm.scale"))
    found = {}
    for key, value in retold(tensors, words).items():
        name = key.removeprefix("model.")
        for old, new in norms:
            name = name.replace(old, new)
        found["norm.scale" if name == "norm.weight" else name] = value
    return found


def half_a_vit(rng: Random) -> Pair:
    """timm's ViT in which something is not as published."""
    whole = vit(rng)
    source, how = dict(whole.source), rng.choice(("one less", "one more", "an average", "codes", "another size"))
    key = rng.choice([key for key in source if "blocks" in key and key.endswith("weight") and source[key].dim() > 1])
    value = source.pop(key)
    if how == "one more":
        source |= {key: value, "blocks.0.attn.q_norm.weight": torch.rand(4)}
    elif how == "an average":
        source[key.replace(".weight", "_ema.weight")] = value
    elif how == "codes":
        source[key] = torch.arange(value.numel()).remainder(100).view(value.shape).to(torch.int8)
    elif how == "another size":
        source[key] = torch.cat([value, value[:1]])
    return replace(whole, what=f"{whole.what}, {how}: {key}", source=source, answers=())


def half_an_attention(rng: Random) -> Pair:
    """torch's MultiheadAttention, or what it is for, in which something is not as its names say."""
    whole = fused(rng)
    while "three projections" not in whole.what.partition(": ")[2][:17]:
        whole = fused(rng)
    source, how = dict(whole.source), rng.choice(("foreign names", "one less", "an average", "others beside", "codes"))
    keys = [key for key in source if ".q_proj." in key]
    choice, answers = "", ()
    if how == "foreign names":
        names = rng.choice((("theta", "phi", "g"), ("a", "b", "c"), ("first", "second", "third")))
        words = dict(zip(rng.sample(_QKV, 3), names, strict=True))
        source, choice, answers = shuffled(retold(source, words), rng), MEANING, whole.answers
    elif how == "one less":
        del source[rng.choice(keys)]
    elif how == "an average":
        key = rng.choice(keys)
        source[key.replace("q_proj", "q_proj_ema")] = source.pop(key)
    elif how == "others beside":
        words = dict(zip(_QKV, ("query", "key", "value"), strict=True))
        some = {key: value for key, value in source.items() if any(f".{part}." in key for part in _QKV)}
        source |= fresh(retold(some, words), rng)
    else:
        key = next(key for key in keys if key.endswith("weight"))
        source[key] = torch.arange(source[key].numel()).remainder(100).view(source[key].shape).to(torch.int8)
    return replace(whole, what=f"{whole.what}, {how}", source=source, answers=answers, choice=choice)


def unknown_order(rng: Random) -> Pair:
    """``attn.qkv`` beside ``attn.proj`` in a network that is nobody's: the rows follow as chance has it."""
    of = case(rng, "blocks")
    by_head = rng.random() < 0.5

    def one(tensors: State) -> State:
        found = joined(tensors, _QKV, "qkv")
        for key, value in found.items():
            if ".qkv." in key and by_head:
                found[key] = value.unflatten(0, (3, HEADS, -1)).transpose(0, 1).flatten(0, 2)
        return retold(found, {"o_proj": "proj", "layers": "blocks"})

    target = retold(of.target, {"layers": "blocks", "o_proj": "proj"})
    aim = Case("", retold(of.truth, {"layers": "blocks", "o_proj": "proj"}), target)
    if rng.random() < 0.5:
        return pair(aim, rng, "qkv of nobody", one(of.truth), choice=LAYOUT)
    return pair(Case("", one(of.truth), one(of.target)), rng, "qkv for nobody", aim.truth, choice=LAYOUT)


ATTENTION: dict[str, Family] = {
    "from other Phi-3": phi,
    "from other Qwen2": qwen,
    "trap: half a ViT": half_a_vit,
    "trap: half an attention": half_an_attention,
    "trap: unknown order": unknown_order,
}
