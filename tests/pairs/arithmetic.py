"""Pairs in which tensors have to be computed of others, or put together; and what only looks like it."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from torch.nn.utils import parametrizations

from tests.pairs.models import N, State, fresh
from tests.pairs.pair import MAP, Case, Family, Pair, case, made_up, pair, under

MASKS = (torch.float32, torch.bool, torch.uint8, torch.float16)


def pruned(rng: Random) -> Pair:
    """Some parameters are pruned, their masks of any dtype, under a prefix."""
    of = case(rng, "fcs", "attention", "mlp", "vgg", "convs", "bert")
    leaf, kind = rng.choice(("weight", "bias", "")), rng.choice(MASKS)
    source, truth = {}, dict(of.truth)
    for key, value in of.truth.items():
        if not value.is_floating_point() or "running" in key or not key.endswith(leaf) or rng.random() < 0.3:
            source[key] = value
            continue
        mask = (fresh({"": value}, rng)[""] > 0).to(kind)
        source[f"{key}_orig"], source[f"{key}_mask"], truth[key] = value, mask, mask.to(value.dtype) * value
    prefix = rng.choice(("", "", "module."))
    return pair(of, rng, f"pruned {leaf or 'anything'} under {prefix!r}", under(prefix, source), answers=(truth,))


def half_pruned(rng: Random) -> Pair:
    """Only the original is there, or only the mask; or the mask has another shape."""
    of = case(rng, "fcs", "attention", "mlp", "vgg")
    what = rng.choice(("no mask", "no original", "another shape"))
    key = rng.choice([key for key, value in of.truth.items() if key.endswith(".weight") and value.dim() > 1])
    source = {}
    for name, value in of.truth.items():
        if name != key:
            source[name] = value
            continue
        if what != "no original":
            source[f"{name}_orig"] = value
        if what != "no mask":
            source[f"{name}_mask"] = torch.ones(value.shape[0] if what == "another shape" else value.shape)
    return pair(of, rng, f"{what} of {key}", source, answers=())


def own_mask(rng: Random) -> Pair:
    """``weight_mask`` is a buffer of the target, so that it cannot be the mask of a pruning as well."""
    of = made_up(rng, {"fc.weight": (N, N), "fc.weight_mask": (N, N), "head.weight": (2, N)}, "a masked layer")
    source = {("fc.weight_orig" if key == "fc.weight" else key): value for key, value in of.truth.items()}
    return pair(of, rng, "weight_orig beside a mask of the target's own", source, answers=())


def own_parts(rng: Random) -> Pair:
    """The target is pruned as well: nothing is computed."""
    of = case(rng, "fcs", "mlp")
    source = {}
    for key, value in of.truth.items():
        source.update({f"{key}_orig": value, f"{key}_mask": (value > 0).float()} if "weight" in key else {key: value})
    aim = Case("", source, {key: torch.zeros_like(value) for key, value in source.items()})
    return pair(aim, rng, "pruned for pruned", under(rng.choice(("", "module.")), source), answers=(source,))


def _adapted(rng: Random, of: Case, rank: int, alpha: int, by_root: bool) -> tuple[State, State]:
    """An adapter on some linear layers, and the model that it is merged into."""
    found, truth = {}, dict(of.truth)
    scale = alpha / (rank**0.5 if by_root else rank)
    linear = [key for key, value in of.truth.items() if value.dim() == 2 and "embed" not in key.lower()]
    linear = [key for key in linear if sum(each is of.truth[key] for each in of.truth.values()) == 1]
    for key in [each for each in linear if each.endswith(".weight")]:
        if rng.random() < 0.6 or not found:
            value, module = of.truth[key], f"base_model.model.{key.removesuffix('.weight')}"
            made = fresh({"a": torch.empty(rank, value.shape[1]), "b": torch.empty(value.shape[0], rank)}, rng)
            found[f"{module}.lora_A.weight"], found[f"{module}.lora_B.weight"] = made["a"], made["b"]
            truth[key] = (value.double() + scale * (made["b"].double() @ made["a"].double())).to(value.dtype)
    return found, truth


def merged(rng: Random) -> Pair:
    """An adapter in a folder of its own, for a base that lacks nothing but it."""
    of = case(rng, "fcs", "attention", "blocks", "llama", "mlp")
    rank, alpha, by_root = rng.choice((1, 2)), rng.choice((1, 4, 7)), rng.random() < 0.3
    adapter, truth = _adapted(rng, of, rank, alpha, by_root)
    prefix = rng.choice(("", "module."))
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "use_rslora": by_root, "fan_in_fan_out": False}
    beside = {"adapter/adapter_model.safetensors": adapter, "adapter/adapter_config.json": config}
    options = ("--merge-adapter", "adapter", *(("--strip-prefix", "module") if prefix else ()))
    return pair(of, rng, f"merged, alpha {alpha}, rank {rank}", under(prefix, of.truth), answers=(truth,),
                options=options, beside=beside)  # fmt: skip


def unmergeable(rng: Random) -> Pair:
    """Something about the adapter is not as it says, or it is for another model."""
    of = case(rng, "fcs", "attention", "blocks", "llama", "mlp")
    adapter, _ = _adapted(rng, of, 2, 4, False)
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}
    what = rng.choice(("rank", "alpha", "DoRA", "another layer", "another base", "beginning"))
    beside = {"adapter/adapter_model.safetensors": adapter, "adapter/adapter_config.json": config}
    if what == "rank":
        config["r"] = 3
    elif what == "alpha":
        del config["lora_alpha"]
    elif what == "DoRA":
        config["use_dora"] = True
    elif what == "beginning":
        config["init_lora_weights"] = rng.choice(("pissa", "olora", "loftq"))
    elif what == "another base":
        config["base_model_name_or_path"] = "somebody/other"
        beside["config.json"] = {"_name_or_path": "somebody/base"}
    else:
        some = next(iter(adapter.values()))
        adapter["base_model.model.layers.99.q_proj.lora_A.weight"] = some.clone()
        adapter["base_model.model.layers.99.q_proj.lora_B.weight"] = some.T.contiguous()
    return pair(of, rng, f"not merged: {what}", of.truth, answers=(), options=("--merge-adapter", "adapter"),
                beside=beside)  # fmt: skip


def _tree(tensors: State) -> dict[str, Any]:
    """A dict for each module, inside each other."""
    found: dict[str, Any] = {}
    for key, value in tensors.items():
        *modules, leaf = key.split(".")
        node = found
        for module in modules:
            node = node.setdefault(module, {})
        node[leaf] = value
    return found


def _apart(tensors: State, token: str = "") -> dict[str, Any]:
    """The state dict of each child, those of parameters of the model itself as they are; a child may be wrapped."""
    found: dict[str, Any] = {}
    for key, value in tensors.items():
        child, _, rest = key.partition(".")
        if rest:
            found.setdefault(child, {})[f"{token}{rest}"] = value
        else:
            found[child] = value
    return found


def put_together(rng: Random) -> Pair:
    """A tree of dicts, or the children's own state dicts, at the top of the file or beside what training needs."""
    of = case(rng, "fcs", "attention", "convs", "autoencoder", "bert", "vit", "gan")
    tree = rng.random() < 0.5
    source = _tree(of.truth) if tree else _apart(of.truth, rng.choice(("", "", "module.")))
    if rng.random() < 0.5:
        source = {"epoch": 3, rng.choice(("params", "model", "state")): source}
    return pair(of, rng, "a tree" if tree else "children apart", source)


def parts_in_doubt(rng: Random) -> Pair:
    """An average of a part, a part with something more in it, or a part that is not there."""
    of = case(rng, "autoencoder", "attention", "bert")  # of several parts
    source = _apart(of.truth)
    child = rng.choice([name for name, each in source.items() if isinstance(each, dict)])
    what = rng.choice(("an average", "something more", "a part less"))
    if what == "an average":
        source[f"{child}_ema"] = fresh(source[child], rng)
    elif what == "something more":
        source[child]["projector.weight"] = fresh({"": torch.empty(N, N)}, rng)[""]
    else:
        source["teacher"] = source.pop(child)
    # what is dropped is a loss, and asked for; the other two cannot be right
    return pair(of, rng, f"{what} of {child}", source, answers=(),
                with_loss=(of.truth,) if what == "something more" else ())  # fmt: skip


def _orthogonal(rng: Random, of: Case, kind: str, trivial: bool) -> tuple[State, State]:
    """Some matrices under torch's parametrization, and the weights that it computes of them in float64."""
    source, truth = {}, dict(of.truth)
    for key, value in of.truth.items():
        some = any(".original" in each for each in source)  # one at least
        if value.dim() != 2 or not key.endswith(".weight") or "embed" in key or (some and rng.random() < 0.4):
            source[key] = value
            continue
        layer = torch.nn.Linear(value.shape[1], value.shape[0], bias=False).double()
        parametrizations.orthogonal(layer, orthogonal_map=kind, use_trivialization=trivial)
        made = {name: each.float() for name, each in layer.state_dict().items()}
        made["parametrizations.weight.original"] += (
            value.tril(-1) if value.shape[0] >= value.shape[1] else value.triu(1)
        )
        layer.load_state_dict(made)
        truth[key] = layer.weight.detach().float()
        source.update(under(key.removesuffix("weight"), made))
    return source, truth


def orthogonal(rng: Random) -> Pair:
    """Weights under an orthogonal parametrization for the plain ones, where its map is said; and where it is not."""
    of, kind = case(rng, "fcs", "mlp", "attention", "vgg"), rng.choice(("matrix_exp", "cayley", "householder"))
    said = rng.random() < 0.6
    source, truth = _orthogonal(rng, of, kind, rng.random() < 0.7)
    options = ("--orthogonal-map", kind) if said else ()
    choice = "" if said else MAP
    prefix = rng.choice(("", "module."))
    return pair(of, rng, f"orthogonal by {kind}{'' if said else ', which is not said'}", under(prefix, source),
                answers=(truth,), options=options, choice=choice)  # fmt: skip


def no_orthogonal(rng: Random) -> Pair:
    """Something is beside the original, or the base is another one's; whatever map is said."""
    of, kind = case(rng, "fcs", "mlp"), rng.choice(("matrix_exp", "cayley", "householder"))
    source, _ = _orthogonal(rng, of, kind, True)
    key = rng.choice([key for key in source if key.endswith(".original")])
    base, how = key.replace("original", "0.base"), rng.choice(("another part", "another base", "no original", "codes"))
    if how == "another part":
        source[key.replace("original", "1.scale")] = torch.rand(())
    elif how == "another base":
        source[base] = torch.rand(len(source[base]) + 1, len(source[base]) + 1)
    elif how == "no original":
        del source[key]
    else:
        source[key] = torch.arange(source[key].numel()).remainder(100).view(source[key].shape).to(torch.int8)
    return pair(of, rng, f"orthogonal, {how}", source, answers=(), options=("--orthogonal-map", kind))


ARITHMETIC: dict[str, Family] = {
    f"{kind}{each.__name__.replace('_', ' ')}": each
    for kind, families in {
        "computed: ": (pruned, merged, put_together, orthogonal),
        "trap: ": (half_pruned, own_mask, own_parts, unmergeable, parts_in_doubt, no_orthogonal),
    }.items()
    for each in families
}
