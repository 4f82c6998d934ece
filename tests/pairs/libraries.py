"""The same network as another code base saves it: its names, and its values where that code base wants them.

Sources: the conversion scripts of transformers for Whisper, CLIP, Llama and ViT (timm), torch's MultiheadAttention,
torchtune's ``tune_to_hf`` and timm's ``checkpoint_filter_fn`` of ConvNeXt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

import torch

from tests.pairs.models import N, State
from tests.pairs.pair import LAYOUT, Case, Family, Pair, case, made_up, pair, under

HEADS = 2


def _named(tensors: State, rules: Sequence[tuple[str, str]]) -> State:
    """The same tensors, the keys rewritten by each rule in turn."""
    found = {}
    for key, value in tensors.items():
        for pattern, new in rules:
            key = re.sub(pattern, new, key)
        found[key] = value
    return found


def joined(tensors: State, parts: Sequence[str], whole: str) -> State:
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
    if rng.random() < 0.4:
        like = {key: torch.zeros_like(value) for key, value in named.items()}
        return pair(Case("", named, like), rng, "transformers' CLIP for OpenAI's code", of.truth)
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
    return pair(of, rng, "timm's ViT", joined(source, "qkv", "qkv"))


def rotated(value: torch.Tensor, heads: int = HEADS) -> torch.Tensor:
    """Rows of a projection as Meta orders them for rotary embeddings: pairs instead of halves."""
    rows, width = value.shape
    return value.view(heads, 2, rows // heads // 2, width).transpose(1, 2).reshape(rows, width)


_META = (
    (r"^model\.", ""), (r"^embed_tokens", "tok_embeddings"), ("self_attn", "attention"), ("q_proj", "wq"),
    ("k_proj", "wk"), ("v_proj", "wv"), ("o_proj", "wo"), (r"mlp\.gate_proj", "feed_forward.w1"),
    (r"mlp\.down_proj", "feed_forward.w2"), (r"mlp\.up_proj", "feed_forward.w3"),
    ("post_attention_layernorm", "ffn_norm"), ("input_layernorm", "attention_norm"), (r"^lm_head", "output"),
)  # fmt: skip
_TUNE = (
    (r"^model\.", ""), (r"^embed_tokens", "tok_embeddings"), ("self_attn", "attn"), ("o_proj", "output_proj"),
    (r"mlp\.gate_proj", "mlp.w1"), (r"mlp\.down_proj", "mlp.w2"), (r"mlp\.up_proj", "mlp.w3"),
    ("post_attention_layernorm.weight", "mlp_norm.scale"), ("input_layernorm.weight", "sa_norm.scale"),
    ("^norm.weight", "norm.scale"), (r"^lm_head", "output"),
)  # fmt: skip
LLAMAS = (_META, _TUNE)


def as_saved_by(rules: Sequence[tuple[str, str]], truth: State) -> State:
    """A Llama of transformers in the names of Meta or of torchtune, the rows of its queries and keys in pairs."""
    turned = {key: rotated(value) if re.search(r"[qk]_proj\.weight", key) else value for key, value in truth.items()}
    return _named(turned, rules)


def _heads(rng: Random) -> dict[str, Any]:
    """How the number of heads is told, if it is: by nobody, by an option, by Meta's params or by a config."""
    way = rng.choice(("", "--heads", "params.json", "config.json"))
    if way == "--heads":
        return {"options": ("--heads", str(HEADS))}
    if way == "params.json":
        return {"beside": {way: {"n_heads": HEADS}}, "called": "consolidated.00", "source_format": "pt"}
    if way == "config.json":
        return {"beside": {way: {"num_attention_heads": HEADS}}, "called": "model", "source_format": "safetensors"}
    return {}


def llama(rng: Random) -> Pair:
    """Meta's and torchtune's Llama → transformers, and back: rows of queries and keys are in another order."""
    of, rules = case(rng, "llama", "mistral"), rng.choice((_META, _TUNE))
    name = "Meta's" if rules is _META else "torchtune's"
    more = _heads(rng)
    said, more["choice"] = (
        sorted(more),
        "" if more else LAYOUT,
    )  # rows are permuted in each head, and no file says how many there are
    if rng.random() < 0.6:
        source = as_saved_by(rules, of.truth)
        buffers = {"rope.freqs": torch.rand(2)} if rules is _META and rng.random() < 0.3 else {}
        prefix = rng.choice(("", "", "module."))
        source = {prefix + key: value for key, value in (source | buffers).items()}
        return pair(of, rng, f"{name} Llama {said}", source, **more)
    aim = Case("", as_saved_by(rules, of.truth), as_saved_by(rules, of.target))
    return pair(aim, rng, f"transformers' Llama for {name} code {said}", of.truth, **more)


def between(rng: Random) -> Pair:
    """Meta's Llama → torchtune: other names, and no other order."""
    of = case(rng, "llama", "mistral")
    aim = Case("", as_saved_by(_TUNE, of.truth), as_saved_by(_TUNE, of.target))
    return pair(aim, rng, "Meta's Llama for torchtune", as_saved_by(_META, of.truth))


def convnext(rng: Random) -> Pair:
    """The first ConvNeXt, or its second version, → timm: nearly all of one size."""
    second, conv = rng.random() < 0.5, rng.random() < 0.3
    one = (N, N, 1, 1) if conv else (N, N)
    shapes: dict[str, tuple[int, ...]] = {"stem.0.weight": (N, 3, 4, 4), "stem.0.bias": (N,)}
    shapes |= {"stem.1.weight": (N,), "stem.1.bias": (N,)}
    for stage in range(3):
        if stage:
            shapes |= {f"stages.{stage}.downsample.0.{leaf}": (N,) for leaf in ("weight", "bias")}
            shapes |= {f"stages.{stage}.downsample.1.weight": (N, N, 2, 2), f"stages.{stage}.downsample.1.bias": (N,)}
        for block in range(2):
            at = f"stages.{stage}.blocks.{block}."
            shapes |= {at + "conv_dw.weight": (N, 1, 7, 7), at + "mlp.fc1.weight": one, at + "mlp.fc2.weight": one}
            shapes |= {f"{at}{layer}.bias": (N,) for layer in ("conv_dw", "norm", "mlp.fc1", "mlp.fc2")}
            grn = {at + "mlp.grn.weight": (N,), at + "mlp.grn.bias": (N,)}
            shapes |= {at + "norm.weight": (N,), **(grn if second else {at + "gamma": (N,)})}
    shapes |= {"head.norm.weight": (N,), "head.norm.bias": (N,), "head.fc.weight": (5, N), "head.fc.bias": (5,)}
    of = made_up(rng, shapes, f"ConvNeXt {'V2' if second else ''}{' of convolutions' if conv else ''}")
    source = _named(of.truth, (
        (r"^head\.norm", "norm"), (r"^head\.fc", "head"), (r"^stem", "downsample_layers.0"),
        (r"^stages\.(\d)\.downsample", r"downsample_layers.\1"), (r"\.blocks", ""), ("conv_dw", "dwconv"),
        (r"mlp\.grn\.weight", "grn.gamma"), (r"mlp\.grn\.bias", "grn.beta"), (r"mlp\.fc", "pwconv"),
    ))  # fmt: skip
    for key, value in source.items():
        if ".grn." in key:
            source[key] = value[None, None, None]
        elif "pwconv" in key and key.endswith("weight"):
            source[key] = value.flatten(1)
    return pair(of, rng, "as first published", source)


_NORMS = (
    {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"},
    {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "var"},
)


def as_kernels(tensors: State, rng: Random, flips: str = "") -> State:
    """What Keras or Flax would save of these layers: kernels with their outputs last, and other names in norms.

    ``flips``: a word in the names of transposed convolutions, which Flax turns by 180°.
    """
    keras = rng.random() < 0.5
    norm, end = _NORMS[0 if keras else 1], rng.choice((":0", "")) if keras else ""
    found = {}
    for key, value in tensors.items():
        layer, _, leaf = key.rpartition(".")
        if leaf == "num_batches_tracked":
            continue
        if f"{layer}.running_mean" in tensors:
            leaf = norm[leaf]
        elif value.dim() > 1:
            if flips and flips in key and not keras and value.dim() > 2:
                value = value.flip(list(range(2, value.dim()))).transpose(0, 1)
            leaf, value = "kernel", torch.movedim(value, (0, 1), (-1, -2)).contiguous()
        found[f"{layer}.{leaf}{end}"] = value
    return found


def kernels(rng: Random) -> Pair:
    """Keras or Flax → the same layers of torch: most convolutions have as many inputs as outputs."""
    of = case(rng, "convs", "vgg", "fcs", "attention", "autoencoder", "gan")
    if of.name == "attention":
        of = Case("", under("attn.", of.truth), under("attn.", of.target))
    source = as_kernels(of.truth, rng, flips="main")
    answer = {key: None if "num_batches" in key else value for key, value in of.truth.items()}
    # of Flax nothing tells a transposed convolution, whose kernels it turns, from another one with as many inputs
    flax = not any(leaf in key for key in source for leaf in ("moving_mean", ":0"))
    choice = LAYOUT if of.name == "gan" and flax else ""
    return pair(of, rng, f"kernels, such as {next(iter(source))}", source, answers=(answer,), choice=choice)


def mixtures(rng: Random) -> Pair:
    """Experts apart, as files of Mixtral and Qwen's mixtures have them, → stacked, as transformers 5 does; and back."""
    count, width, mixtral = rng.choice((3, 4, 11)), rng.choice((N, 2 * N)), rng.random() < 0.5
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (9, width), "model.norm.weight": (width,)}
    for layer in range(2):
        at = f"model.layers.{layer}."
        shapes |= {at + "self_attn.q_proj.weight": (width, width), at + "mlp.gate.weight": (count, width)}
        shapes |= {
            at + "mlp.experts.gate_up_proj": (count, 2 * N, width),
            at + "mlp.experts.down_proj": (count, width, N),
        }
        if not mixtral:
            shapes |= {at + "mlp.shared_expert.up_proj.weight": (N, width), at + "self_attn.q_norm.weight": (4,)}
    of = made_up(rng, shapes | {"lm_head.weight": (9, width)}, "mixture of experts")
    apart = _experts_apart(of.truth, mixtral)
    if rng.random() < 0.4:
        return pair(Case("", apart, _experts_apart(of.target, mixtral)), rng, "experts stacked", of.truth)
    keys = rng.sample(list(apart), len(apart))
    return pair(of, rng, "experts apart", {key: apart[key] for key in keys})


def _experts_apart(stacked: State, mixtral: bool) -> State:
    gate, up, down = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    found = {}
    for key, value in stacked.items():
        lead, _, leaf = key.partition(".experts.")
        lead = lead.replace(".mlp", ".block_sparse_moe") if mixtral else lead
        for number, each in enumerate(value if leaf else ()):
            if leaf == "down_proj":
                found[f"{lead}.experts.{number}.{down}.weight"] = each.clone()
            else:
                found[f"{lead}.experts.{number}.{gate}.weight"] = each[: len(each) // 2].clone()
                found[f"{lead}.experts.{number}.{up}.weight"] = each[len(each) // 2 :].clone()
        if not leaf:
            found[lead if not mixtral else key.replace("mlp.gate", "block_sparse_moe.gate")] = value
    return found


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
    return pair(of, rng, "each head's q, k and v together", source, choice=LAYOUT)


def bert(rng: Random) -> Pair:
    """BERT as it was first published: gamma, beta, and heads under ``cls``."""
    of = case(rng, "bert", "bert masked", "bert classes")
    source = {re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", re.sub(r"LayerNorm\.bias$", "LayerNorm.beta", key)): v
              for key, v in of.truth.items()}  # fmt: skip
    return pair(of, rng, "the first BERT", source)


LIBRARIES: dict[str, Family] = {
    f"from {name}": each
    for name, each in {
        "OpenAI Whisper": whisper, "OpenAI CLIP": clip, "timm ViT": vit, "other Llama": llama,
        "Meta to torchtune": between, "first ConvNeXt": convnext, "other GPT-2": gpt2, "other attention": fused,
        "interleaved heads": interleaved, "first BERT": bert,
        "Keras or Flax": kernels, "experts apart": mixtures,
    }.items()
}  # fmt: skip
