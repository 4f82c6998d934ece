"""The file holds the weights of several networks.

Meaning
    A GAN saves its generator and its discriminator, an agent its actor and its critic, a codec its encoder and its
    decoder: state dicts with keys and shapes of their own, side by side in one file.

Why it matters
    Each belongs to a model of its own. The wrong one does not load, or loads nothing at all with ``strict=False``.

Symptoms
    Missing key(s) in state_dict: "conv1.weight", …
    Unexpected key(s) in state_dict: "generator", "discriminator".

Detection
    The file has two or more state dicts that are not the same network (that is W302). By itself this is info, not a
    fault; with a reference the one that fits is found, and this rule is silent.

Repair
    Choose: ``ckptdoctor fix FILE --root KEY`` keeps only one of them. Run it once for each to give every network its
    own file.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.weight_sets import networks
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.structure import sets
from ckptdoctor.rules.when import nested_weights

_ONE = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}
_OTHER = {"conv.weight": T((4, 3, 1, 1)), "conv.bias": T((4,))}
ALSO = ("W301",)
SICK = (
    Example("a generator and a discriminator", {"generator": _ONE, "discriminator": _OTHER, "step": 3}),
    Example("networks in a list", [_ONE, _OTHER]),
    Example("an average of one of two", {"g": _ONE, "d": _OTHER, "g_ema": _ONE}),
)
HEALTHY = (
    Example("one network", {"model": _ONE, "epoch": 3}),
    Example("raw and averaged weights", {"model": _ONE, "ema": _ONE}),
    Example("weights and statistics", {"model": _ONE, "normalizer": {"mean": T((3,)), "std": T((3,))}}),
    Example("a model that decides which", {"generator": _ONE, "discriminator": _OTHER}, like=_OTHER),
)


@rule("W304", "multiple-networks", Severity.INFO, when=nested_weights)
def multiple_networks(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report files with more than one network; with a reference W301 and W311 say what fits."""
    if isinstance(subject, Comparison):
        return
    found = networks(subject)
    if len(found) < 2:
        return
    firsts = [network.sets[0] for network in found]
    yield Problem(
        message=f"{len(found)} networks: {sets.described(firsts)}",
        cause="Each belongs to a model of its own, and none loads into another's.",
        advice="fix keeps the one that --root names, and nothing else:",
        keys=tuple([each.path for each in firsts]),
        location=Location(path=firsts[0].path),
        commands=sets.commands(subject, firsts),
    )
