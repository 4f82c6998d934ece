"""The file holds the weights of several networks.

What it means
    A GAN saves its generator and its discriminator, an agent its actor and its critic, a codec its encoder and its
    decoder: state dicts with keys and shapes of their own, side by side in one file.

Why it matters
    Each belongs to a model of its own. The wrong one does not load, or loads nothing at all with ``strict=False``.

What you see
    Missing key(s) in state_dict: "conv1.weight", …
    Unexpected key(s) in state_dict: "generator", "discriminator".

How it is found
    Two or more state dicts lie in the file that are not the same network (that is W302). By itself this is worth
    knowing and no fault; with a reference the one that fits is found, and this rule is silent.

Repair
    Choose: ``ckptdoctor fix FILE --root KEY`` keeps one of them and nothing else. Once for each, and every network has
    its own file.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.weight_sets import networks
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit import sets
from ckptdoctor.rules.kit.sets import BESIDE
from ckptdoctor.rules.messages import Way
from ckptdoctor.rules.when import nested_weights
from ckptdoctor.wording import and_so_on

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
    Example("a model that says which", {"generator": _ONE, "discriminator": _OTHER}, like=_OTHER),
)


@rule("W304", "multiple-networks", Severity.INFO, when=nested_weights)
def multiple_networks(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Files with more than one network; with a reference W301 and W311 say what fits."""
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


_NAMED = 3  # parts that a sentence names


@judges(Turn.FILE, general=1)
def of_an_error(rest: IncompatibleKeys) -> Iterator[Cause]:
    """What missing keys begin with lies at the top of the file: each part of the model has a state dict of its own."""
    parts = {key.partition(".")[0] for key in rest.missing if "." in key} & rest.top
    covered = [key for key in rest.missing if key.partition(".")[0] in parts]
    if not parts or 2 * len(covered) < len(rest.missing) or len(covered) < len(parts):
        return
    meaning = (
        f"the file holds one state dict for each part of the model ({and_so_on(sorted(parts), _NAMED)}), and"
        " load_state_dict wants one for all of it"
    )
    chosen = "".join(f'"{part}", ' for part in sorted(parts))
    inner = f'{{f"{{part}}.{{key}}": value for part in ({chosen}) for key, value in weights[part].items()}}'
    ways = (Way("load it with", f"model.load_state_dict({inner})"),)
    yield Cause(meaning, Repair.BY_HAND, ways, missing=covered, unexpected=parts | (rest.top & BESIDE))
