"""Layers are renamed throughout: the code was refactored between saving and loading.

Meaning
    ``norm.1`` became ``norm1``, ``layers`` became ``stages``, ``bbox_head`` became ``head``: the same network with
    other names for some of its parts, everywhere in the same way. Or the parts were rearranged too, and numbers moved:
    ``downsample_layers.1.0`` of ConvNeXt is ``stages.1.downsample.0`` in timm.

Why it matters
    ``load_state_dict`` fails; with ``strict=False`` the renamed parts keep their random weights.

Symptoms
    Missing key(s) in state_dict: "features.denseblock1.denselayer1.norm1.weight", …
    Unexpected key(s) in state_dict: "features.denseblock1.denselayer1.norm.1.weight", …
    The model and loaded state dict do not match exactly

Detection
    Only with a reference. Keys without a counterpart are paired by order, last token and shape; the difference between
    the pairs is a substitution of tokens, which counts if it makes at least half of the keys with that token fit. Both
    sides are also compared as trees of modules: the largest parts that hold the same parameters are matched first, then
    the parts inside them. Equal parts are distinguished by their numbers and names and by their neighbours.

Repair
    ``ckptdoctor fix FILE --auto --like OTHER``: keys are renamed one to one. Safe where one name is part of the other,
    or names, shapes and the tree of modules allow no other assignment. Otherwise it is a guess from the order of keys,
    and so is a single part that gets an unrelated name, such as ``norm`` and ``fc_norm``. A guess is never written, not
    even with ``--unsafe-fixes``: specify the names with ``--rename`` or ``--map``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Turn, judges
from ckptdoctor.rules.kit.moving import moved_problems
from ckptdoctor.rules.kit.names_in_errors import rename_causes

_OLD = {f"layers.{n}.norm.{i}.{leaf}": T((4 + n,)) for n in (0, 1) for i in (1, 2) for leaf in ("weight", "bias")}
_NEW = {key.replace("norm.", "layer_norm_"): value for key, value in _OLD.items()}
_STAGES = {key.replace("layers.", "stages."): value for key, value in _OLD.items()}
_SIDE = {f"downsample.{n}.{leaf}": T((5 + n,)) for n in (0, 1) for leaf in ("weight", "bias")}
_INSIDE = {f"stages.{key[11]}.downsample.{key[13:]}": value for key, value in _SIDE.items()}
ALSO = ("N410", "N424", "N426")
SICK = (
    Example("a part with another name", _OLD, like=_NEW),
    Example("a container with another name", _OLD, like=_STAGES),
    Example("numbers in other places", _OLD | _SIDE, like=_STAGES | _INSIDE),
)
HEALTHY = (
    Example("the same names", _OLD, like=_OLD),
    Example(
        "another model",
        {"a.weight": T((3, 3)), "b.weight": T((5, 5)), "c.weight": T((7, 7))},
        like={"x.weight": T((2, 2)), "y.weight": T((4, 4)), "z.weight": T((6, 6))},
    ),
)
_CAUSE = "Each side has its own names for the same parts."


@rule("N423", "systematic-rename", Severity.ERROR)
def systematic_rename(comparison: Comparison) -> Iterator[Problem]:
    """Report one step of the chain."""
    yield from moved_problems(
        comparison,
        "N423",
        _CAUSE,
        "Only their order shows which key is which, and a guess is never written: specify the names with "
        "--rename or --map.",
    )


@judges(Turn.NAME, general=1)
def of_names(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Parts have other names, each in every key that has it."""
    yield from rename_causes(rest, "N423", _CAUSE)
