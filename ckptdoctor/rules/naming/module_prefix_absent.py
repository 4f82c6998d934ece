"""The target's keys begin with ``module.``, and those of the checkpoint do not.

Meaning
    The target model is wrapped in DataParallel or DistributedDataParallel, which hold the real model in an attribute
    called ``module``; the checkpoint was saved from the bare model.

Why it matters
    ``load_state_dict`` of the wrapped model fails, or with ``strict=False`` silently loads nothing at all.

Symptoms
    Error(s) in loading state_dict for DataParallel:
    Missing key(s) in state_dict: "module.conv1.weight", "module.bn1.weight", …
    Unexpected key(s) in state_dict: "conv1.weight", "bn1.weight", …

Detection
    Only with a reference: with ``module.`` before each key, more keys have a counterpart of the same shape than
    without, and more than with any other prefix.

Repair
    ``ckptdoctor fix FILE --add-prefix module.``, or load into ``model.module`` instead, which needs no repair. Safe
    where half of the reference fits only this way, or every key has its counterpart: no value changes, and
    ``--strip-module`` undoes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.facts import names
from ckptdoctor.findings import Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.prefixes import prefix_code
from ckptdoctor.noun import replace
from ckptdoctor.rules.examples import Example, Odict, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit.names_in_errors import counters, in_wrapper, lead_cause, without_wrappers
from ckptdoctor.rules.messages import Way
from ckptdoctor.rules.naming.prefixing import prefix_problem

_BARE = {"conv.weight": T((4, 3, 3, 3)), "fc.weight": T((2, 4)), "fc.bias": T((2,))}
_WRAPPED = {f"module.{key}": value for key, value in _BARE.items()}
ALSO = ("N403",)
SICK = (
    Example("bare weights for a wrapped model", Odict(dict(_BARE), {"": {"version": 1}}), like=_WRAPPED),
    Example("a training checkpoint for a wrapped model", {"epoch": 3, "model": _BARE}, like={"model": _WRAPPED}),
)
HEALTHY = (
    Example("bare weights for the bare model", _BARE, like=_BARE),
    Example("wrapped weights for a wrapped model", _WRAPPED, like=_WRAPPED),
    Example("another attribute", _BARE, like={f"model.{key}": value for key, value in _BARE.items()}),
)


@rule("N402", "module-prefix-absent", Severity.ERROR)
def module_prefix_absent(comparison: Comparison) -> Iterator[Problem]:
    """Report references whose keys begin with ``module.`` before the checkpoint's."""
    prefix, state_dict = comparison.prefix, comparison.state_dict
    if prefix is not None and state_dict is not None and prefix_code(prefix) == "N402":
        problem = prefix_problem(
            comparison,
            state_dict,
            prefix,
            "The target is wrapped in DataParallel or DistributedDataParallel, and these weights were saved from the "
            "bare model. Loading them fails, and with strict=False loads nothing.",
        )
        yield replace(problem, advice="Or load them into model.module, which needs no repair.")


@judges(Turn.WRAPPER, general=2)
def of_all_keys(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Most missing keys begin with a wrapper's token, and without it they are the file's."""
    for token, wrapper in ((names.MODULE, "DataParallel or DistributedDataParallel"), ("_orig_mod", "torch.compile")):
        led = [key for key in rest.missing if key.startswith(f"{token}.")]
        inner = {without_wrappers(key) for key in led}
        here = not rest.unexpected or not inner.isdisjoint(rest.unexpected)
        if led and here and 2 * len(led) >= len(rest.missing):
            meaning = f"the model is inside {wrapper}, and the file was saved from the bare model"
            ways = (
                Way("load it into the bare model", f"model.{token}.load_state_dict(weights)"),
                Way("or repair the file", "ckptdoctor fix FILE --auto TARGET"),
            )
            inner |= counters(rest.unexpected, inner)
            yield Cause(meaning, Repair.SAFE, ways, missing=led, unexpected=inner)
            return


@judges(Turn.PREFIX, general=1)
def of_a_prefix(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Half of the keys lack it."""
    yield from lead_cause(rest, "N402", "the model is inside DataParallel or DistributedDataParallel")


@judges(Turn.NAME)
def of_parts(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Keys are unexpected that are missing ones without the token of a wrapper."""
    found = in_wrapper(rest, names.WRAPPERS | {names.MODULE}, model=True)
    if found is not None:
        place, keys = found
        meaning = f'a part of the model is inside a wrapper ("{place}."), and the file was saved without it'
        yield Cause(meaning, Repair.SAFE, missing=keys.names, unexpected=keys.unexpected)
