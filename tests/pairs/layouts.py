"""Layouts in which parts of a tensor change their places: gates of recurrent layers, projections of unequal parts."""

from __future__ import annotations

from random import Random

import torch
from torch import nn

from tests.pairs.libraries import joined
from tests.pairs.models import N, State, fresh
from tests.pairs.pair import LAYOUT, Case, Family, Pair, case, made_up, pair, retold, under

_QKV = ("q_proj", "k_proj", "v_proj")
_GATED = ("gate_proj", "up_proj")
_SWAPPED = (1, 0, 2)  # r, z, n ↔ z, r, h
_NAMES = ("rnn", "encoder.rnn", "tagger", "body.lstm")


def _recurrent(rng: Random, kind: type[nn.RNNBase], both: bool) -> tuple[Case, str]:
    """A recurrent layer between linear ones, most sizes equal, and where it is."""
    where = rng.choice(_NAMES)
    size = rng.choice((N, (3 if kind is nn.GRU else 4) * N))
    layer = kind(size, N, bidirectional=both)
    like = {f"{where}.{key}": value for key, value in layer.state_dict().items()}
    like |= {f"head.{key}": value for key, value in nn.Linear(N * (1 + both), 3).state_dict().items()}
    return Case("", fresh(like, rng), fresh(like, rng)), where


def _of_keras(truth: State, where: str, rng: Random) -> State:
    """What Keras would save of it; the second bias of an LSTM is taken for zero."""
    gates = truth[f"{where}.weight_hh_l0"].shape[0] // N
    cell, end = ("gru", "lstm")[gates - 3] + "_cell", rng.choice(("", ":0"))
    cell += rng.choice(("", "_1", "/")).removesuffix("/")
    both = f"{where}.weight_hh_l0_reverse" in truth
    *outer, last = where.split(".")
    found = {}
    for way, tail in (("forward", ""), ("backward", "_reverse"))[: 1 + both]:
        layer = "/".join([*outer, "bidirectional", f"{way}_{last}"] if both else [*outer, last])

        def part(leaf: str, tail: str = tail) -> torch.Tensor:
            value = truth[f"{where}.{leaf}_l0{tail}"]
            return torch.cat([value.chunk(3)[at] for at in _SWAPPED]) if gates == 3 else value

        found[f"{layer}/{cell}/kernel{end}"] = part("weight_ih").T.contiguous()
        found[f"{layer}/{cell}/recurrent_kernel{end}"] = part("weight_hh").T.contiguous()
        bias = part("bias_ih")
        found[f"{layer}/{cell}/bias{end}"] = torch.stack([bias, part("bias_hh")]) if gates == 3 else bias
    head = {f"head/kernel{end}": truth["head.weight"].T.contiguous(), f"head/bias{end}": truth["head.bias"]}
    return found | head


def recurrent(rng: Random) -> Pair:
    """LSTM or GRU of Keras, in one direction or in both, for torch."""
    kind, both = rng.choice((nn.LSTM, nn.GRU)), rng.random() < 0.5
    of, where = _recurrent(rng, kind, both)
    if kind is nn.LSTM:
        of.truth.update({key: torch.zeros_like(value) for key, value in of.truth.items() if "bias_hh" in key})
    source = _of_keras(of.truth, where, rng)
    what = f"{kind.__name__} of Keras{', both directions' if both else ''}, such as {next(iter(source))}"
    return pair(of, rng, what, under(rng.choice(("", "", "net/")), source))


def no_recurrent(rng: Random) -> Pair:
    """Recurrent layers of Keras that torch has not, or in which something is not as the names say."""
    how = rng.choice(("reset before", "no bias", "one direction less", "other gates", "a mean", "turned", "two alike"))
    both = how in ("one direction less", "two alike") or rng.random() < 0.3
    kind = nn.GRU if how in ("reset before", "no bias", "other gates") else rng.choice((nn.LSTM, nn.GRU))
    of, where = _recurrent(rng, kind, both)
    source = _of_keras(of.truth, where, rng)
    keys = [key for key in source if "_cell" in key]
    bias, inner = (next(key for key in keys if f"/{leaf}" in key) for leaf in ("bias", "recurrent_kernel"))
    if how == "reset before":
        source.update({key: source[key][0].clone() for key in keys if "/bias" in key})
    elif how == "no bias":
        source = {key: value for key, value in source.items() if key not in keys or "/bias" not in key}
        for each in (of.truth, of.target):
            for key in [key for key in each if "bias_" in key]:
                del each[key]
    elif how == "one direction less":
        source = {key: value for key, value in source.items() if "backward" not in key}
    elif how == "other gates":
        like = {f"{where}.{key}": value for key, value in nn.LSTM(N, N, bidirectional=both).state_dict().items()}
        aim = fresh(like, rng) | {key: value for key, value in of.target.items() if key.startswith("head.")}
        return pair(Case("", of.truth, aim), rng, "a GRU for an LSTM", source, answers=())
    elif how == "a mean":
        source[bias.replace("bias", "bias_mean")] = source.pop(bias)
    elif how == "turned":
        source[inner] = source[inner].T.contiguous()
    else:
        twin = ".".join([*where.split(".")[:-1], "bidirectional"])  # what ``Bidirectional`` is called in its place
        more = {key.replace(where, twin): value for key, value in of.target.items() if "head" not in key}
        of = Case("", of.truth, of.target | more)
    return pair(of, rng, f"a recurrent layer of Keras: {how}", source, answers=())


def _phi(rng: Random, shared: int) -> tuple[Case, Case]:
    """A Llama whose heads share keys and values, and the same as a Phi-3; ``shared`` is the size of either."""
    of = case(rng, "llama")
    shapes = {key: tuple(value.shape) for key, value in of.truth.items()}
    shapes = {key: (shared, N) if ".k_proj." in key or ".v_proj." in key else shape for key, shape in shapes.items()}
    llama = made_up(rng, shapes)
    whole = [joined(joined(each, _QKV, "qkv_proj"), _GATED, "gate_up_proj") for each in (llama.truth, llama.target)]
    return llama, Case("", *whole)


def phi(rng: Random) -> Pair:
    """Phi-3 whose heads share keys and values, for the code of Llama; and back."""
    llama, whole = _phi(rng, rng.choice((N // 2, N // 4)))
    if rng.random() < 0.5:
        return pair(llama, rng, "Phi-3 of shared heads for Llama", under(rng.choice(("", "module.")), whole.truth))
    return pair(whole, rng, "a Llama of shared heads for Phi-3", llama.truth)


def no_phi(rng: Random) -> Pair:
    """Parts of the projection that are no queries, keys and values by their sizes, or one of them is something else."""
    llama, whole = _phi(rng, N // 2)
    how = rng.choice(("keys and queries swapped", "more keys", "an average", "codes"))
    source, target = (whole.truth, llama.target) if rng.random() < 0.5 else (llama.truth, whole.target)
    apart = target if source is whole.truth else source
    keys = [key for key in apart if any(f".{part}." in key for part in _QKV)]
    if how == "keys and queries swapped":
        for key in [key for key in keys if ".q_proj." in key]:
            other = key.replace("q_proj", "k_proj")
            apart[key], apart[other] = apart[other], apart[key]
    elif how == "more keys":
        for key in [key for key in keys if ".k_proj." in key or ".v_proj." in key]:
            rows = N // 4 if ".v_proj." in key else N - N // 4
            apart[key] = fresh({"": torch.empty(rows, N)}, rng)[""]
    elif how == "an average":
        key = rng.choice(keys)
        apart[key.replace("_proj", "_proj_ema")] = apart.pop(key)
    else:
        key = rng.choice([key for key in source if "qkv" in key or key in keys])
        source[key] = torch.arange(source[key].numel()).view(source[key].shape).to(torch.int8)
    return pair(Case("", {}, target), rng, f"no Phi-3 of shared heads: {how}", source, answers=())


_SPELLED = (_QKV, ("query", "key", "value"), ("to_q", "to_k", "to_v"), ("wq", "wk", "wv"))


def _gpt2(rng: Random, inner: int) -> tuple[Case, Case]:
    """GPT-2 of transformers, and the same with linear layers and three projections."""
    lead = rng.choice(("transformer.", ""))
    shapes: dict[str, tuple[int, ...]] = {f"{lead}{key}.weight": (12, N) for key in ("wte", "wpe")}
    for block in range(2):
        at = f"{lead}h.{block}."
        linear = {"attn.c_attn": (N, 3 * N), "attn.c_proj": (N, N), "mlp.c_fc": (N, inner), "mlp.c_proj": (inner, N)}
        for key, shape in linear.items():
            shapes |= {f"{at}{key}.weight": shape, f"{at}{key}.bias": shape[1:]}
        shapes |= {f"{at}ln_{each}.{leaf}": (N,) for each in (1, 2) for leaf in ("weight", "bias")}
    shapes |= {f"{lead}ln_f.weight": (N,), f"{lead}ln_f.bias": (N,)}
    of, names = made_up(rng, shapes), rng.choice(_SPELLED)
    return of, Case("", *[_linear(each, names) for each in (of.truth, of.target)])


def _linear(tensors: State, names: tuple[str, ...]) -> State:
    found = {}
    for key, value in tensors.items():
        turned = value.T.contiguous() if ".c_" in key and value.dim() == 2 else value
        if ".c_attn." not in key:
            found[key] = turned
            continue
        for name, part in zip(names, turned.chunk(3), strict=True):
            found[key.replace("c_attn", name)] = part.clone()
    return found


def gpt2(rng: Random) -> Pair:
    """GPT-2's fused matrix with its inputs first for three linear layers, and back."""
    whole, apart = _gpt2(rng, rng.choice((4 * N, 2 * N)))
    one, other = (whole, apart) if rng.random() < 0.5 else (apart, whole)
    return pair(other, rng, "GPT-2 apart" if other is apart else "three for GPT-2", one.truth)


def no_gpt2(rng: Random) -> Pair:
    """Nothing shows that matrices are turned, or one of them is not; a part that is something else."""
    how = rng.choice(("all square", "one not turned", "an average", "linear c_attn", "inputs first in both"))
    whole, apart = _gpt2(rng, N if how == "all square" else 4 * N)
    source, aim = dict(whole.truth), dict(apart.target)
    fc = next(key for key in source if key.endswith("mlp.c_fc.weight"))
    if how == "one not turned":
        aim[fc] = aim[fc].T.contiguous()
    elif how == "an average":
        key = rng.choice([key for key in aim if key.endswith(".weight") and ".attn." in key and "c_proj" not in key])
        aim[key.replace(".weight", "_ema.weight")] = aim.pop(key)
    elif how == "linear c_attn":
        turned = [key for key in source if ".c_" in key and source[key].dim() == 2]
        source |= {key: source[key].T.contiguous() for key in turned}
    elif how == "inputs first in both":
        turned = [key for key in aim if ".c_" in key and aim[key].dim() == 2]
        aim |= {key: aim[key].T.contiguous() for key in turned}
    # which way round a square part lies, and in which order a linear one, is a person's word
    choice = LAYOUT if how in ("all square", "linear c_attn") else ""
    answers = (apart.truth,) if choice else ()
    return pair(Case("", {}, aim), rng, f"GPT-2 in doubt: {how}", source, answers=answers, choice=choice)


def _dinov2(rng: Random, gated: bool) -> tuple[Case, Case]:
    """DINOv2 as its own code saves it, and the model of transformers."""
    shapes: dict[str, tuple[int, ...]] = {"cls_token": (1, 1, N), "pos_embed": (1, 5, N), "mask_token": (1, N)}
    shapes |= {"patch_embed.proj.weight": (N, 3, 4, 4), "patch_embed.proj.bias": (N,), "norm.weight": (N,)}
    shapes |= {"norm.bias": (N,)} | ({"register_tokens": (1, 2, N)} if rng.random() < 0.5 else {})
    wide = ("mlp.w12", 2 * N, "mlp.w3") if gated else ("mlp.fc1", N, "mlp.fc2")
    for block in range(2):
        at = f"blocks.{block}."
        for key, rows in (("attn.qkv", 3 * N), ("attn.proj", N), wide[:2], (wide[2], N)):
            shapes |= {f"{at}{key}.weight": (rows, N), f"{at}{key}.bias": (rows,)}
        shapes |= {f"{at}norm{each}.{leaf}": (N,) for each in (1, 2) for leaf in ("weight", "bias")}
        shapes |= {f"{at}ls{each}.gamma": (N,) for each in (1, 2)}
    of = made_up(rng, shapes)
    return of, Case("", *[_hugging(each) for each in (of.truth, of.target)])


_DINO = {"blocks": "encoder.layer", "attn": "attention", "proj": "o_proj", "ls1": "layer_scale1", "gamma": "lambda1",
         "ls2": "layer_scale2", "w3": "down_proj"}  # fmt: skip
_DINO_TOP = (("patch_embed.o_proj", "embeddings.patch_embeddings.projection"), ("norm.", "layernorm."),
             ("pos_embed", "embeddings.position_embeddings"), ("cls_token", "embeddings.cls_token"),
             ("mask_token", "embeddings.mask_token"), ("register_tokens", "embeddings.register_tokens"))  # fmt: skip


def _hugging(tensors: State) -> State:
    found: State = {}
    for key, value in retold(tensors, _DINO).items():
        parts = {"qkv": _QKV, "w12": _GATED}.get(key.split(".")[-2] if "." in key else "", ())
        for part, each in zip(parts, value.chunk(max(1, len(parts))), strict=False):
            found[key.replace(".qkv.", f".{part}.").replace(".w12.", f".{part}.")] = each.clone()
        if not parts:
            top = next((new + key[len(old) :] for old, new in _DINO_TOP if key.startswith(old)), key)
            found[top] = value
    return found


def dinov2(rng: Random) -> Pair:
    """DINOv2 between its first code and transformers, with registers and gated layers or without."""
    of, other = _dinov2(rng, rng.random() < 0.5)
    one, target = (of, other) if rng.random() < 0.6 else (other, of)
    return pair(target, rng, "DINOv2 for transformers" if target is other else "for its first code", one.truth)


def no_dinov2(rng: Random) -> Pair:
    """DINOv2 in which something is not as published."""
    of, other = _dinov2(rng, True)
    source, how = dict(of.truth), rng.choice(("no mask token", "one more", "an average", "codes", "other halves"))
    key = rng.choice([key for key in source if "blocks" in key and key.endswith("weight") and source[key].dim() > 1])
    if how == "no mask token":
        del source["mask_token"]
    elif how == "one more":
        source["blocks.0.attn.q_norm.weight"] = torch.rand(4)
    elif how == "an average":
        source[key.replace(".weight", "_ema.weight")] = source.pop(key)
    elif how == "codes":
        source[key] = torch.arange(source[key].numel()).remainder(100).view(source[key].shape).to(torch.int8)
    else:
        source = {key.replace("w12", "w21"): value for key, value in source.items()}
    return pair(other, rng, f"DINOv2: {how}", source, answers=())


LAYOUTS: dict[str, Family] = {
    "from DINOv2": dinov2,
    "trap: DINOv2": no_dinov2,
    "from GPT-2 to three projections": gpt2,
    "trap: GPT-2 in doubt": no_gpt2,
    "from Phi-3 of shared heads": phi,
    "trap: Phi-3 of shared heads": no_phi,
    "from recurrent Keras": recurrent,
    "trap: recurrent Keras": no_recurrent,
}
