"""The checkpoint's keys and the target's differ by one common prefix, such as ``model.`` or ``net.``.

Meaning
    A LightningModule, or any larger model, holds the real one in an attribute, so that its keys are
    ``model.conv1.weight`` instead of ``conv1.weight``. The target is the inner model (strip the prefix), or the outer
    one (add it).

Why it matters
    ``load_state_dict`` fails, or with ``strict=False`` silently loads nothing at all.

Symptoms
    Missing key(s) in state_dict: "conv1.weight", "bn1.weight", …
    Unexpected key(s) in state_dict: "model.conv1.weight", "model.bn1.weight", …

Detection
    Only with a reference: every prefix with which some key gets a counterpart of the same shape is tried, and the one
    that makes most keys fit, and more than fit without it, is named. Keys that do not begin with it are left over. A
    prefix counts only if half of the keys have it, or if it makes half of the reference fit.

Repair
    ``ckptdoctor fix FILE --strip-prefix model.`` (or ``--add-prefix model.``), in the keys, in ``_metadata`` and in an
    optimizer's ``param_names``. Safe where half of the reference fits only this way, or every renamed key has its
    counterpart: no value changes, and the opposite option undoes it. Otherwise unsafe. Never where two keys would get
    one name. Where another part also fits under a prefix of its own (generator and discriminator, student and teacher),
    no prefix is safe: each part is named with the command that takes it, unless both hold the same values.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Mapping
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.prefixes import prefix_code
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Turn, judges
from ckptdoctor.rules.kit.names_in_errors import lead_cause
from ckptdoctor.rules.naming.prefixing import prefix_problem

_BARE = {"conv.weight": T((4, 3, 3, 3)), "fc.weight": T((2, 4)), "fc.bias": T((2,))}
_MODEL = {f"model.{key}": value for key, value in _BARE.items()}
ALSO = ("N408", "N410")
SICK = (
    Example(
        "a Lightning checkpoint for the bare model",
        {"pytorch-lightning_version": "2.6.0", "state_dict": {**_MODEL, "criterion.weight": T((2,))}},
        like=_BARE,
    ),
    Example("bare weights for a larger model", _BARE, like=_MODEL),
    Example(
        "an encoder from a larger model",
        {**{f"encoder.{key}": value for key, value in _BARE.items()}, "decoder.fc.weight": T((9, 9))},
        like=_BARE,
    ),
)
HEALTHY = (
    Example("the same keys", _MODEL, like=_MODEL),
    Example("module. is another rule's", _BARE, like={f"module.{key}": value for key, value in _BARE.items()}),
    Example(
        "stripping would give two keys one name",
        {"fc.weight": T((2, 4)), **{f"aux.{key}": value for key, value in _BARE.items()}},
        like=_BARE,
    ),
)


@rule("N409", "enclosing-prefix", Severity.ERROR)
def enclosing_prefix(comparison: Comparison) -> Iterator[Problem]:
    """Report one prefix to strip or to add."""
    prefix, state_dict = comparison.prefix, comparison.state_dict
    if prefix is not None and state_dict is not None and prefix_code(prefix) == "N409":
        yield prefix_problem(comparison, state_dict, prefix, _cause(comparison, prefix.text[:-1], prefix.added))


def _cause(comparison: Comparison, attribute: str, added: bool) -> str:
    if added:
        return f"The target holds this model in an attribute called {attribute}; the keys here lack its name."
    tree = comparison.checkpoint.tree
    top = {part for part, _ in tree.entries} if isinstance(tree, Mapping) else set()
    if "pytorch-lightning_version" in top:
        return f"Saved by Lightning, whose LightningModule holds the model in an attribute called {attribute}."
    return f"Saved from a larger model that holds this one in an attribute called {attribute}."


@judges(Turn.PREFIX, general=1)
def of_a_prefix(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Half of the keys of one side begin with it."""
    yield from lead_cause(
        rest, "N409", "the same network, held by an attribute of another (a LightningModule, a wrapper)"
    )
