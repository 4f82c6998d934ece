"""Pairs in which tensors have to be computed of others, or put together; and what only looks like it."""

from __future__ import annotations

from random import Random

import torch

from tests.pairs.models import N, fresh
from tests.pairs.pair import Case, Family, Pair, case, made_up, pair, under

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


ARITHMETIC: dict[str, Family] = {
    f"{kind}{each.__name__.replace('_', ' ')}": each
    for kind, families in {
        "computed: ": (pruned,),
        "trap: ": (half_pruned, own_mask, own_parts),
    }.items()
    for each in families
}
