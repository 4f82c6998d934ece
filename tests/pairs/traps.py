"""Pairs that ask for a guess: each family holds out one that looks as if it were right.

Where there is no answer, whatever is written is wrong. Where there is one that names alone do not tell, the values lie
by chance, so that whoever goes by order or by shapes is wrong sooner or later.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from random import Random

import torch

from tests.pairs.libraries import LLAMAS, as_kernels, as_saved_by, clip, mixtures
from tests.pairs.models import N, State, fresh
from tests.pairs.pair import (
    FOREIGN,
    LAYOUT,
    MEANING,
    ORDER,
    Case,
    Family,
    Pair,
    case,
    made_up,
    moved,
    pair,
    retold,
    shuffled,
    siblings,
    under,
)

# tokens that make another quantity of a leaf
QUANTITIES = (
    *("{}_sq", "log_{}", "{}_grad", "{}_scale", "{}_packed", "{}_inv", "{}_ema", "{}_momentum", "raw_{}", "{}_mask"),
    *("inv_{}", "{}_zero_point", "d_{}", "{}_delta", "{}_std", "neg_{}", "{}_orig", "q{}"),
)
# tokens that make another module of one
OTHERS = (
    *("aux_{}", "ema_{}", "teacher_{}", "old_{}", "momentum_{}", "{}_target", "{}_aux", "{}_ema", "{}_grad"),
    *("exp_avg_{}", "inverse_{}", "{}_negative", "frozen_{}"),
)
RIVALS = (
    *(("generator", "discriminator"), ("student", "teacher"), ("online", "target"), ("query_encoder", "ctx_encoder")),
    *(("vae1", "vae2"), ("raw", "averaged"), ("actor", "critic"), ("encoder_q", "encoder_k"), ("model", "model_ema")),
    *(("net", "momentum_net"), ("model", "exp_avg"), ("weights", "exp_avg_sq")),
)


def _formats(rng: Random) -> dict[str, str]:
    """A target that is sorted by name half the time."""
    return {
        "target_format": rng.choice(("pt", "safetensors")),
        "source_format": rng.choice(("pt", "pt", "safetensors")),
    }


def strangers(rng: Random) -> Pair:
    """Parts of one shape with names that tell nothing, in an order of their own."""
    of = case(rng, real=False)
    groups = siblings(of.truth)
    if not groups:
        of, groups = (found := case(rng, "attention")), siblings(found.truth)
    source, said = dict(of.truth), []
    names = rng.sample(FOREIGN, len(FOREIGN))
    for paths in rng.sample(groups, min(len(groups), rng.choice((1, 2, 9)))):
        some = rng.sample(paths, len(paths))[: len(names)]
        parent = some[0].rpartition(".")[0] if some else ""
        lead = f"{parent}." if parent else ""
        if len(set(some)) < 2 or not all(any(key.startswith(each + ".") for key in source) for each in some):
            continue
        new = {old: lead + name for old, name in zip(some, names, strict=False)}
        names = names[len(some) :]  # no two parts get one name
        said.append(new)
        order = {key: source[key] for path in some for key in source if key.startswith(path + ".")}
        source = moved({**order, **{key: value for key, value in source.items() if key not in order}}, new)
    return pair(of, rng, f"foreign names {said}", source, choice=MEANING, **_formats(rng))


def projections(rng: Random) -> Pair:
    """Queries, keys and values under the names of non-local networks, or said in full in another order."""
    of = case(rng, "attention", "blocks", "llama")
    parts = ["q_proj", "k_proj", "v_proj"]
    names = rng.choice((("theta", "phi", "g"), ("query", "key", "value"), ("Q", "K", "V"), ("a", "b", "c"),
                        ("to_query", "to_key", "to_value"), ("source", "context", "content")))  # fmt: skip
    known = names[0] in ("query", "Q", "to_query")
    words = dict(zip(parts if known else rng.sample(parts, 3), names, strict=True))
    source = retold(of.truth, words)
    choice = "" if known else MEANING
    return pair(of, rng, f"projections {words}", shuffled(source, rng), choice=choice, **_formats(rng))


def quantities(rng: Random) -> Pair:
    """The leaf is another quantity: its square, its logarithm, its gradient, its scale."""
    of = case(rng)
    token = rng.choice(QUANTITIES)
    leaf = rng.choice(("weight", "weight", "bias"))
    shared = Counter(map(id, of.truth.values()))  # what is tied is known under its other name
    alone = [key for key, value in of.truth.items() if shared[id(value)] == 1]
    keys = [key for key in alone if key.rpartition(".")[2] == leaf] or alone
    leaf = keys[0].rpartition(".")[2]
    keys = [key for key in keys if key.rpartition(".")[2] == leaf]
    some = keys if rng.random() < 0.5 else rng.sample(keys, 1)
    prefix = rng.choice(("", "", "module."))
    source = {prefix + (key[: -len(leaf)] + token.format(leaf) if key in some else key): value
              for key, value in of.truth.items()}  # fmt: skip
    return pair(of, rng, f"{len(some)} {leaf} as {token}", source, answers=())


def other_parts(rng: Random) -> Pair:
    """A part of another meaning has the name and the shape of one that is missing."""
    of = case(rng)
    tokens = sorted({token for key in of.truth for token in key.split(".")[:-1] if not token.isdecimal()})
    token = rng.choice(tokens or ["0"])
    new = rng.choice(OTHERS).format(token)
    source = retold(of.truth, {token: new})
    kept = {id(value) for key, value in source.items() if key in of.truth}
    # all that was lost may be there under another name, to which the target ties it; what is left over goes when asked
    tied = kept and all(id(value) in kept for value in of.truth.values())
    return pair(of, rng, f"{new} instead of {token}", source, answers=(), with_loss=(of.truth,) if tied else ())


def flat_rivals(rng: Random) -> Pair:
    """Two flat prefixes that fit; unless both hold the same, only a person knows which is wanted."""
    of, (one, other) = case(rng), rng.choice(RIVALS)
    same = rng.random() < 0.2
    second = dict(of.truth) if same else fresh(of.truth, rng)
    halves = [under(f"{one}.", of.truth), under(f"{other}.", {key: v.clone() for key, v in second.items()})]
    rng.shuffle(halves)
    source = {**halves[0], **halves[1]}
    return pair(of, rng, f"{one} and {other}{', equal' if same else ''}", source,
                answers=(of.truth,) if same else ())  # fmt: skip


def nested_rivals(rng: Random) -> Pair:
    """Two sets of weights in one file."""
    of = case(rng)
    one, other = rng.choice((("model", "ema"), ("state_dict", "ema_state_dict"), ("generator", "discriminator"),
                             ("student", "teacher"), ("net", "best_net"), ("netG", "netD")))  # fmt: skip
    prefix = rng.choice(("", "module."))
    source = {one: under(prefix, of.truth), other: under(rng.choice(("", prefix)), fresh(of.truth, rng))}
    return pair(of, rng, f"{one} and {other}", source, answers=())


def codes(rng: Random) -> Pair:
    """Quantised integers where the target wants numbers, with or without what undoes it."""
    of = case(rng, "fcs", "attention", "blocks", "llama", "transformer encoder", "convs")
    prefix, words = rng.choice((("", {}), ("module.", {}), ("model.", {}), ("", {"layers": "blocks", "fc1": "one"})))
    source = {}
    for key, value in retold(of.truth, words).items():
        if key.endswith("weight") and value.dim() > 1:
            dtype = rng.choice((torch.int8, torch.uint8))
            source[prefix + key] = torch.arange(value.numel()).remainder(100).view(value.shape).to(dtype)
            if rng.random() < 0.5:
                source[f"{prefix}{key[:-6]}weight_scale"] = fresh({"": torch.empty(value.shape[0])}, rng)[""]
        else:
            source[prefix + key] = value
    return pair(of, rng, f"integers under {prefix!r}", source, answers=())


def bare(rng: Random) -> Pair:
    """A bare square parameter for a linear layer: multiplied from the left, or from the right."""
    shapes = {"embed.weight": (9, N), "proj.weight": (N, N), "text_projection.weight": (N, N), "norm.weight": (N,)}
    of = made_up(rng, shapes, "projections")
    turned = rng.random() < 0.7
    source = {}
    for key, value in of.truth.items():
        flips = "proj" in key
        source[key.removesuffix(".weight") if flips else key] = value.T.contiguous() if flips and turned else value
    return pair(of, rng, "bare parameters", source, choice=LAYOUT, **_formats(rng))


def overlapping(rng: Random) -> Pair:
    """Numbers that are partly the same: only as a whole do they have a place."""
    layers, by = rng.choice((3, 4, 5)), rng.choice((1, 1, 2, -1))
    stem = rng.choice(("fc{}", "layers.{}", "conv{}", "blocks.{}.mlp", "net.{}"))
    begin = rng.choice((1, 2))
    of = made_up(rng, {
        "stem.weight": (N, 3),
        **{f"{stem.format(n)}.{leaf}": shape for n in range(begin, begin + layers)
           for leaf, shape in (("weight", (N, N)), ("bias", (N,)))},
        "head.weight": (2, N),
    }, "overlapping")  # fmt: skip
    names = {f"{stem.format(n)}.": f"{stem.format(n + by)}." for n in range(begin, begin + layers)}
    source = {}
    for key, value in of.truth.items():
        old = next((each for each in names if key.startswith(each)), None)
        source[key if old is None else names[old] + key[len(old) :]] = value
    return pair(of, rng, f"{layers} {stem} shifted by {by}", source, **_formats(rng))


def one_less(rng: Random) -> Pair:
    """The list lacks a member in its middle, and has one more at its end: which one is which, nobody knows."""
    of = made_up(rng, {f"layers.{n}.weight": (N, N) for n in range(4)} | {"head.weight": (2, N)}, "one less")
    gone = rng.choice((1, 2))
    source = {key: value for key, value in of.truth.items() if key != f"layers.{gone}.weight"}
    source.update(fresh({f"layers.{rng.choice((4, 5, 7))}.weight": torch.empty(N, N)}, rng))
    return pair(of, rng, f"no layer {gone}, and another one at the end", source, answers=(), **_formats(rng))


def sorted_names(rng: Random) -> Pair:
    """A target sorted by name, so that 10 stands before 2, and parts that only the order could tell."""
    count = 12
    of = made_up(rng, {f"layers.{n}.weight": (N, N) for n in range(count)}, "sorted")
    words = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "last"]
    words.insert(10, "eleventh")
    letters = [f"block_{chr(97 + n)}" for n in range(count)]
    names = rng.choice((words, letters, rng.sample(words, count)))
    shift = names is not words and names is not letters
    source = {f"{names[n]}.weight": of.truth[f"layers.{n}.weight"] for n in range(count)}
    if shift:
        source = dict(sorted(source.items()))
    aim = Case("", of.truth, dict(sorted(of.target.items())))
    return pair(
        aim, rng, f"layers called {names[0]} to {names[-1]}", source,
        target_format=rng.choice(("pt", "safetensors")), choice=ORDER,
    )  # fmt: skip


def experts(rng: Random) -> Pair:
    """Experts under names, in an order of their own."""
    of = case(rng, "experts")
    names = rng.sample(("maths", "code", "prose", "law"), 4)
    source: State = {}
    for key, value in of.truth.items():
        tokens = key.split(".")
        if "experts" in tokens:
            tokens[3] = names[int(tokens[3])]
        source[".".join(tokens)] = value
    return pair(of, rng, f"experts called {names}", shuffled(source, rng), choice=MEANING, **_formats(rng))


def another_model(rng: Random) -> Pair:
    """Another network whose layers have the same shapes."""
    of = made_up(rng, {f"{name}.{leaf}": shape for name in ("actor.fc1", "actor.fc2", "critic.fc1", "critic.fc2")
                       for leaf, shape in (("weight", (N, N)), ("bias", (N,)))}, "actor and critic")  # fmt: skip
    other = case(rng, "attention", "autoencoder", "mlp", "fcs")
    return pair(of, rng, f"{other.name} instead", other.truth, answers=(), **_formats(rng))


def missing(rng: Random) -> Pair:
    """A layer is not there, and another one is too many."""
    of = case(rng)
    module = rng.choice([key.rpartition(".")[0] for key in of.truth if key.endswith(".weight")])
    gone = {key: value for key, value in of.truth.items() if key.startswith(module + ".")}
    keep = [id(value) for value in gone.values()]
    source = {key: value for key, value in of.truth.items() if key not in gone and id(value) not in keep}
    extra = rng.choice(FOREIGN)
    source.update({extra + key[len(module) :]: value for key, value in fresh(gone, rng).items()})
    prefix = rng.choice(("", "module."))
    return pair(of, rng, f"{extra} instead of {module}", under(prefix, source), answers=())


def pruned(rng: Random) -> Pair:
    """A weight that is the product of ``weight_orig`` and ``weight_mask``."""
    of = case(rng, "fcs", "attention", "mlp", "vgg")
    source, truth = {}, dict(of.truth)
    for key, value in of.truth.items():
        if key.endswith(".weight"):
            mask = (fresh({"": value}, rng)[""] > 0).to(value.dtype)
            source[f"{key}_orig"], source[f"{key}_mask"], truth[key] = value, mask, value * mask
        else:
            source[key] = value
    return pair(of, rng, "pruned", source, answers=(truth,))


def heads(rng: Random) -> Pair:
    """Two heads of one shape, both called otherwise."""
    of = made_up(rng, {"body.weight": (N, N), "head_a.weight": (3, N), "head_b.weight": (3, N)}, "two heads")
    one, other = rng.choice((("cls", "box"), ("out1", "out2"), ("mu", "logvar"), ("policy", "value"), ("b", "a")))
    lot = [of.truth["head_a.weight"], of.truth["head_b.weight"]]
    rng.shuffle(lot)
    source = {"body.weight": of.truth["body.weight"], f"{one}.weight": lot[0], f"{other}.weight": lot[1]}
    truth = (of.truth,)
    if one == "b":
        source = {"body.weight": of.truth["body.weight"], "b.weight": of.truth["head_b.weight"],
                  "a.weight": of.truth["head_a.weight"]}  # fmt: skip
    choice = "" if one == "b" else MEANING
    return pair(of, rng, f"{one} and {other}", source, answers=truth, choice=choice, **_formats(rng))


def half_a_layout(rng: Random) -> Pair:
    """Meta's or torchtune's Llama in which something is not as published: then the order of rows is not known."""
    of, rules = case(rng, "llama", "mistral"), rng.choice(LLAMAS)
    source = as_saved_by(rules, of.truth)
    how = rng.choice(("a decoy", "foreign queries", "one less", "larger vocabulary", "another name", "swapped"))
    answers: tuple[State, ...] = ()
    if how == "a decoy":
        key = next(key for key in source if re.search(r"wq|q_proj", key))
        source = shuffled({**source, key.replace("layers.0", "layers.0.draft"): source[key].clone()}, rng)
    elif how == "foreign queries":
        source = retold(source, {"wq": "wk2", "q_proj": "k2_proj"})
    elif how == "one less":
        del source[rng.choice([key for key in source if "layers.1" in key])]
    elif how == "larger vocabulary":
        source = {key: torch.cat([value, value[:1]]) if key.startswith("output") else value
                  for key, value in source.items()}  # fmt: skip
    elif how == "another name":
        source = retold(source, {rng.choice(("attention_norm", "sa_norm", "feed_forward", "mlp")): "other"})
        if set(source) == set(as_saved_by(rules, of.truth)):
            answers = (of.truth,)
    else:  # queries under the name of keys, and keys under that of queries: nobody can see it, and the names decide
        source = retold(source, {"wq": "wk", "wk": "wq", "q_proj": "k_proj", "k_proj": "q_proj"})
        answers = (retold(of.truth, {"q_proj": "k_proj", "k_proj": "q_proj"}),)
    options = rng.choice(((), ("--heads", "2")))
    choice = LAYOUT if answers and not options else ""  # nobody said how many heads there are
    return pair(of, rng, f"{how} {options}", source, answers=answers, options=options, choice=choice, **_formats(rng))


def half_a_clip(rng: Random) -> Pair:
    """OpenAI's CLIP without one of its tensors, or with one too many: what is square is not transposed by half."""
    whole = clip(rng)
    source, how = dict(whole.source), rng.choice(("one less", "one more", "another name"))
    key = rng.choice([key for key in source if key != "logit_scale"])
    value = source.pop(key)
    if how == "one more":
        source |= {key: value, "aux_projection": torch.rand(N, N)}
    elif how == "another name":
        source[f"aux_{key}"] = value
    return replace(whole, what=f"{whole.what}, {how}: {key}", source=source, answers=())


def flattened(rng: Random) -> Pair:
    """A linear layer behind a flattened image: in Keras and Flax the channels come last, so its inputs are permuted."""
    last, side = rng.choice((2, 4, N)), rng.choice((2, 3, 4))
    wide = last * side * side
    middle = rng.choice((wide, N, 2 * N))  # as wide as the flattened image, perhaps
    of = made_up(rng, {
        "conv1.weight": (middle, 3, 3, 3), "conv2.weight": (last, middle, 3, 3), "conv3.weight": (last, last, 3, 3),
        "fc1.weight": (wide, wide), "fc1.bias": (wide,), "fc2.weight": (wide, wide), "fc2.bias": (wide,),
    }, "flattened")  # fmt: skip
    channels_last = dict(of.truth)
    channels_last["fc1.weight"] = of.truth["fc1.weight"].view(wide, last, side, side).permute(0, 2, 3, 1).flatten(1)
    source = as_kernels(channels_last, rng)
    return pair(of, rng, f"{middle}, {last} × {side}²", source, choice=LAYOUT, **_formats(rng))


def named_weight(rng: Random) -> Pair:
    """Kernels with their outputs last that are called weight: where all sizes are equal, nothing tells."""
    of = case(rng, "convs", "vgg")
    keys = [key for key in of.truth if key.endswith("weight") and of.truth[key].dim() == 4]
    square = {f"stem.{key}": torch.movedim(of.truth[key][:, :3, :3, :3][:3], (0, 1), (-1, -2)) for key in keys}
    truth = {f"stem.{key}": of.truth[key][:, :3, :3, :3][:3] for key in keys}
    odd = fresh({"last.weight": torch.empty(5, 3, 3, 3)}, rng)
    source = {**square, "last.weight": torch.movedim(odd["last.weight"], (0, 1), (-1, -2))}
    truth = {key: value.contiguous() for key, value in {**truth, **odd}.items()}
    source = {key: value.contiguous() for key, value in source.items()}
    aim = Case("", truth, fresh(truth, rng))
    return pair(aim, rng, "kernels called weight", source, choice=LAYOUT, **_formats(rng))


def odd_experts(rng: Random) -> Pair:
    """A mixture of which an expert is missing, comes twice, or has a tensor of another name: nothing is stacked."""
    whole = mixtures(rng)
    while "apart" not in whole.what:
        whole = mixtures(rng)
    source, how = dict(whole.source), rng.choice(("one less", "one more", "from 1", "another name"))
    keys = [key for key in source if ".experts." in key]
    if how == "one less":
        del source[rng.choice(keys)]
    elif how == "one more":
        source |= {key.replace("experts.0", "experts.97"): source[key].clone() for key in keys if "experts.0" in key}
    elif how == "from 1":
        for key in sorted(keys, key=lambda key: -int(key.split(".experts.")[1].split(".")[0])):
            lead, _, rest = key.partition(".experts.")
            number, _, leaf = rest.partition(".")
            source[f"{lead}.experts.{int(number) + 1}.{leaf}"] = source.pop(key)
    else:
        key = rng.choice(keys)
        source[key.replace(".weight", ".delta")] = source.pop(key)
    return replace(whole, what=f"{whole.what}, {how}", source=source,
                   answers=whole.answers if how == "from 1" else ())  # fmt: skip


TRAPS: dict[str, Family] = {
    f"trap: {each.__name__.replace('_', ' ')}": each
    for each in (
        strangers, projections, quantities, other_parts, flat_rivals, nested_rivals, codes, bare, overlapping, one_less,
        sorted_names, experts, another_model, missing, pruned, heads, half_a_layout, half_a_clip,
        flattened, named_weight, odd_experts,
    )
}  # fmt: skip
