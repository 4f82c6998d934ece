"""Ways in which good checkpoints go wrong. There is an answer to each: it is given, or the repair is refused."""

from __future__ import annotations

from random import Random
from typing import Any

import torch

from tests.pairs.models import N, State, fresh
from tests.pairs.pair import (
    FOREIGN,
    FOREIGN_PART,
    LAYOUT,
    PREFIXES,
    Case,
    Family,
    Pair,
    case,
    lone,
    made_up,
    modules,
    pair,
    retold,
    shuffled,
    under,
)

# what two code bases call the same part; each of the first is unlike all others
SYNONYMS = (
    {"layers": "blocks", "layer": "blocks", "blocks": "layers", "encoder": "enc", "decoder": "dec"},
    {"q_proj": "q", "k_proj": "k", "v_proj": "v", "query": "q", "key": "k", "value": "v"},
    {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "out", "query": "to_q", "key": "to_k"},
    {"norm1": "ln_1", "norm2": "ln_2", "norm3": "ln_3", "norm": "ln", "LayerNorm": "layer_norm"},
    {"conv1": "c1", "conv2": "c2", "bn1": "norm1", "bn2": "norm2", "downsample": "shortcut"},
    {"mlp": "feed_forward", "attn": "self_attn", "self_attn": "attn", "attention": "attn", "mlp.gate": "g"},
    {"linear1": "fc1", "linear2": "fc2", "fc1": "linear1", "fc2": "linear2", "fc3": "linear3", "fc4": "linear4"},
    {"features": "convs", "classifier": "fc", "fc": "classifier", "head": "classifier", "embed": "tok_embeddings"},
)


def healthy(rng: Random) -> Pair:
    """Nothing is wrong, or only the order or the dtype is another one."""
    of = case(rng)
    what = rng.choice(("as it is", "in another order", "in half precision"))
    source = {"as it is": of.truth, "in another order": shuffled(of.truth, rng)}.get(what) or _half(of.truth, rng)
    return pair(of, rng, what, source, answers=(source,))


def prefixed(rng: Random) -> Pair:
    """One to three prefixes before all keys."""
    of, prefix = case(rng), "".join(rng.sample(PREFIXES, rng.choice((1, 1, 2, 3))))
    return pair(of, rng, f"under {prefix}", under(prefix, of.truth))


def lacking_prefix(rng: Random) -> Pair:
    """The target has a prefix that the checkpoint lacks."""
    of, prefix = case(rng), rng.choice(("module.", "model.", "net.", "module.model.", "_orig_mod."))
    aim = Case("", under(prefix, of.truth), under(prefix, of.target))
    return pair(aim, rng, f"{of.name} without {prefix}", of.truth)


def wrapped(rng: Random) -> Pair:
    """Inside dicts, beside what training needs."""
    of = case(rng)
    key = rng.choice(("state_dict", "model", "net", "model_state_dict", "weights"))
    prefix = rng.choice(("", "module.", "model."))
    beside: dict[str, Any] = {"epoch": 3, "best_acc": 0.5}
    if rng.random() < 0.5:
        moments = {n: {"exp_avg": each.clone(), "step": 7} for n, each in enumerate(fresh(of.truth, rng).values())}
        beside["optimizer"] = {"state": moments, "param_groups": [{"lr": 0.1, "params": list(moments)}]}
    source = {**beside, key: under(prefix, of.truth)}
    if rng.random() < 0.3:
        source = {"checkpoint": source}
    return pair(of, rng, f"in {key!r} under {prefix!r}", source)


def averaged(rng: Random) -> Pair:
    """The state dict of ``AveragedModel``."""
    of = case(rng)
    source = {"n_averaged": torch.tensor(5), **under("module.", of.truth)}
    return pair(of, rng, "averaged", source)


def wrapped_inside(rng: Random) -> Pair:
    """Only a part was wrapped: ``encoder.module.0.weight``."""
    of = case(rng)
    tops = list({key.partition(".")[0]: None for key in of.truth if "." in key})
    top, token = rng.choice(tops), rng.choice(("module", "_orig_mod", "_checkpoint_wrapped_module"))
    source = {(f"{top}.{token}.{key[len(top) + 1 :]}" if key.startswith(top + ".") else key): value
              for key, value in of.truth.items()}  # fmt: skip
    return pair(of, rng, f"{top} under {token}", source)


def one_name(rng: Random) -> Pair:
    """One token has a name that tells nothing: what is left over has one place to go as a whole."""
    of = case(rng)
    tokens = sorted({token for key in of.truth for token in key.split(".")[:-1] if not token.isdecimal()})
    if not tokens:
        return prefixed(rng)
    token = rng.choice(tokens)
    new = rng.choice(FOREIGN)
    choice = FOREIGN_PART if lone(of.truth, token) else ""
    return pair(of, rng, f"{token} is called {new}", retold(of.truth, {token: new}), choice=choice)


def synonyms(rng: Random) -> Pair:
    """Several parts have other names that people understand."""
    of, words = case(rng), {}
    for each in rng.sample(SYNONYMS, 3):
        words.update(each)
    used = {token for key in of.truth for token in key.split(".")}
    words = {old: new for old, new in words.items() if old in used and new not in used}
    source = retold(of.truth, words)
    if len(source) != len(of.truth):
        return one_name(rng)
    source = shuffled(source, rng) if rng.random() < 0.3 else source
    return pair(of, rng, f"synonyms {words}", source)


def spelled(rng: Random) -> Pair:
    """Other separators, or other capitals."""
    of, new = case(rng), rng.choice(("/", "_", "-", "upper", "title", ""))
    change = {"upper": str.upper, "title": str.title}.get(new, lambda key: key.replace(".", new))
    source = {change(key): value for key, value in of.truth.items()}
    return pair(of, rng, f"spelled with {new!r}", source) if len(source) == len(of.truth) else prefixed(rng)


def gamma_beta(rng: Random) -> Pair:
    """Norms in the names of TensorFlow."""
    of = case(rng, "blocks", "convs", "transformer encoder", "bert", "vit", "gan", "resnet", "clip")
    one = {key for held in modules(of.truth).values() for key in held if of.truth[held[0]].dim() == 1}
    leaf = {"weight": "gamma", "bias": "beta"}
    source = {}
    for key, value in of.truth.items():
        module, _, name = key.rpartition(".")
        source[f"{module}.{leaf[name]}" if key in one and name in leaf else key] = value
    return pair(of, rng, "gamma and beta", under(rng.choice(("", "module.")), source))


def norm_formats(rng: Random) -> Pair:
    """Weight norm as the older API of torch wrote it, or the target's."""
    of = case(rng, "normed")
    old = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}

    def older(tensors: State) -> State:
        return {next((key.replace(new, was) for new, was in old.items() if new in key), key): value
                for key, value in tensors.items()}  # fmt: skip

    if rng.random() < 0.5:
        return pair(of, rng, "the older weight norm", older(of.truth))
    return pair(Case("", older(of.truth), older(of.target)), rng, "the newer weight norm", of.truth)


def numbered(rng: Random) -> Pair:
    """A list counted from another number, or with other gaps; every member moves."""
    of = case(rng, "fcs", "mlp", "vgg", "blocks", "autoencoder", "gan", "transformer encoder", "experts")
    by = rng.choice((1, 2, -1))
    by = 1 if by < 0 and of.name != "fcs" else by  # no list counts from -1
    gaps = rng.random() < 0.4
    source = {}
    for key, value in of.truth.items():
        tokens = key.split(".")
        at = next((n for n, each in enumerate(tokens) if each.isdecimal()), None)
        if at is not None:
            tokens[at] = str(2 * int(tokens[at])) if gaps else str(int(tokens[at]) + by)
        elif of.name == "fcs" and tokens[0] != "head":
            tokens[0] = f"fc{2 * int(tokens[0][2:]) if gaps else int(tokens[0][2:]) + by}"
        source[".".join(tokens)] = value
    return pair(of, rng, "every second number" if gaps else f"numbers {by:+d}", source)


def base_model(rng: Random) -> Pair:
    """A model with a head for a target that is its base."""
    of = case(rng, "bert", "roberta", "distilbert", "transformer encoder", "convs")
    prefix = rng.choice(("bert.", "roberta.", "model.", "base_model.", "backbone."))
    head = fresh({"classifier.weight": torch.empty(3, N), "classifier.bias": torch.empty(3)}, rng)
    return pair(of, rng, f"{prefix} and a head", {**under(prefix, of.truth), **head}, with_loss=(of.truth,))


def half(rng: Random) -> Pair:
    """Another precision under a prefix."""
    of, prefix = case(rng), rng.choice(("module.", "model.", "net."))
    truth = _half(of.truth, rng)
    return pair(of, rng, f"half precision under {prefix}", under(prefix, truth), answers=(truth,))


def _half(tensors: State, rng: Random) -> State:
    dtype = rng.choice((torch.float16, torch.bfloat16))
    cast: dict[int, torch.Tensor] = {}
    for value in tensors.values():
        cast.setdefault(id(value), value.to(dtype) if value.is_floating_point() else value)
    return {key: cast[id(value)] for key, value in tensors.items()}


def tied(rng: Random) -> Pair:
    """The head is the embedding, and only one of them was saved."""
    of = case(rng, "tied", "gpt2", "bert masked", "t5", "whisper")
    firsts: dict[int, str] = {}
    for key, value in of.truth.items():
        firsts.setdefault(id(value), key)
    source = {key: value for key, value in of.truth.items() if firsts[id(value)] == key}
    prefix = rng.choice(("", "module.", "model."))
    return pair(of, rng, f"tied weights once, under {prefix!r}", under(prefix, source))


def more_keys(rng: Random) -> Pair:
    """Something beside the model that the target does not know: a part of the training goes, another model does not."""
    of, prefix = case(rng), rng.choice(("", "module.", "model."))
    side = ({"criterion.weight": (3,)}, {"loss_fn.weight": (N,)})
    trained = (
        {"total_ops": (1,), "total_params": (1,)},  # of one module, in float32: thop's are others
        {"projector.weight": (N, N), "projector.bias": (N,)},
        {"aux.weight": (N, N)},
        {"fc9.weight": (N, N)},
    )
    extra = rng.choice((*side, *trained))
    more = fresh({key: torch.empty(shape) for key, shape in extra.items()}, rng)
    answers = {"answers" if extra in side else "with_loss": (of.truth,)}
    return pair(of, rng, f"also {list(extra)} under {prefix!r}", {**under(prefix, of.truth), **more}, **answers)


def no_counters(rng: Random) -> Pair:
    """Batch norms saved before torch counted their batches."""
    of, prefix = case(rng, "convs", "resnet", "gan"), rng.choice(("", "module."))
    source = {key: value for key, value in of.truth.items() if not key.endswith("num_batches_tracked")}
    answer = {key: value if key in source else None for key, value in of.truth.items()}
    return pair(of, rng, f"no counters under {prefix!r}", under(prefix, source), answers=(answer,))


def replaced(rng: Random) -> Pair:
    """A careless replacement took letters out of the middle of names."""
    of = made_up(rng, {
        "mlp_module.0.weight": (N, N), "mlp_module.1.weight": (N, N), "att_module.0.weight": (N, N), "head.weight": (N,)
    }, "careless")  # fmt: skip
    return pair(of, rng, 'replace("module.", "")', {key.replace("module.", ""): v for key, v in of.truth.items()})


def stacked(rng: Random) -> Pair:
    """Experts in one tensor for a target that has them apart, or the other way round; square, or seen to be turned.

    The slices of square ones are transposed or not, as chance has it: some libraries keep them inputs × outputs.
    """
    square, turned = rng.random() < 0.5, rng.random() < 0.5
    of = case(rng, "experts")
    if not square:
        of = made_up(rng, {key: _narrow(key, value) for key, value in of.truth.items()}, "narrow experts")

    def stack(tensors: State) -> State:
        found = {key: value for key, value in tensors.items() if ".experts." not in key}
        for layer in range(2):
            for part in ("w1", "w2", "w3"):
                name = f"layers.{layer}.experts"
                every = torch.stack([tensors[f"{name}.{n}.{part}.weight"] for n in range(4)])
                found[f"{name}.{part}"] = every.mT.contiguous() if turned else every
        return found

    what, choice = f"{'square' if square else 'not square'}{', turned' if turned else ''}", LAYOUT if square else ""
    if rng.random() < 0.5:
        return pair(of, rng, f"stacked experts, {what}", stack(of.truth), choice=choice)
    aim = Case("", stack(of.truth), stack(of.target))
    return pair(aim, rng, f"experts apart, {what}", of.truth, choice=choice)


def _narrow(key: str, value: torch.Tensor) -> tuple[int, ...]:
    """The shape of a tensor of a mixture whose experts are not square."""
    shape = tuple(value.shape)
    inner = {"w1": (N + 3, N), "w3": (N + 3, N), "w2": (N, N + 3)}
    return inner[key.split(".")[-2]] if ".experts." in key else shape


def kernels(rng: Random) -> Pair:
    """Dense layers of Keras and Flax: ``kernel``, inputs × outputs."""
    of = case(rng, "fcs", "attention", "autoencoder", "blocks", "transformer encoder")
    source = {}
    for key, value in of.truth.items():
        flips = key.endswith(".weight") and value.dim() == 2 and "embed" not in key
        source[key[: -len("weight")] + "kernel" if flips else key] = value.T.contiguous() if flips else value
    return pair(of, rng, "kernels", source)


def adapter(rng: Random) -> Pair:
    """A model with unmerged adapters in it: without them it is another one, and with them it is a sum."""
    of = case(rng, "attention", "blocks", "autoencoder", "llama", "bert")
    named = [key for key in of.truth if key.endswith(("q_proj.weight", "v_proj.weight", "query.weight", "0.weight"))]
    source, merged = {}, dict(of.truth)
    for key, value in of.truth.items():
        module, _, leaf = key.rpartition(".")
        if f"{module}.weight" not in named or of.truth[f"{module}.weight"].dim() != 2:
            source[key] = value
            continue
        source[f"{module}.base_layer.{leaf}"] = value
        if leaf == "weight":
            made = fresh({"a": torch.empty(2, value.shape[1]), "b": torch.empty(value.shape[0], 2)}, rng)
            source[f"{module}.lora_A.default.weight"], source[f"{module}.lora_B.default.weight"] = made["a"], made["b"]
            merged[key] = value + made["b"] @ made["a"]
    return pair(of, rng, "adapters", under("base_model.model.", source), answers=(), with_loss=(of.truth, merged))


def several(rng: Random) -> Pair:
    """Half precision, a wrapper, a prefix, a renamed container, at once."""
    of = case(rng)
    tokens = sorted({token for key in of.truth for token in key.split(".")[:-1] if not token.isdecimal()})
    words = {rng.choice(tokens): rng.choice(FOREIGN)} if tokens and rng.random() < 0.6 else {}
    truth = _half(of.truth, rng) if rng.random() < 0.3 else of.truth
    prefix = "".join(rng.sample(PREFIXES, rng.choice((0, 1, 2))))
    source = under(prefix, retold(truth, words))
    nested = {"epoch": 1, "state_dict": source} if rng.random() < 0.5 else source
    choice = FOREIGN_PART if any(lone(of.truth, token) for token in words) else ""
    return pair(of, rng, f"{words} under {prefix!r}", nested, answers=(truth,), choice=choice)


WAYS: dict[str, Family] = {
    each.__name__.replace("_", " "): each
    for each in (
        healthy, prefixed, lacking_prefix, wrapped, averaged, wrapped_inside, one_name, synonyms, spelled, gamma_beta,
        norm_formats, numbered, base_model, half, tied, more_keys, no_counters, replaced, stacked, kernels, adapter,
        several,
    )
}  # fmt: skip
