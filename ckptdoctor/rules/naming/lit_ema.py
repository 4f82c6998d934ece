"""A running average of latent diffusion's LitEma, whose names have no dots, with its two counters.

Meaning
    ``LitEma`` keeps averaged weights in buffers, whose names may not contain dots
    (``model_ema.diffusion_modelout2weight`` for ``model.diffusion_model.out.2.weight``), and counts in ``decay`` and
    ``num_updates``.

Why it matters
    No other model has such keys: ``load_state_dict`` fails. The average is often the better set of weights, and is
    easily missed.

Symptoms
    Unexpected key(s) in state_dict: "model_ema.decay", "model_ema.num_updates",
    "model_ema.diffusion_modelinput_blocks00weight", …

Detection
    ``decay`` (a float) and ``num_updates`` (an integer) of one element each are under one name, or at the top, next to
    nothing but keys without dots that end like parameters. By itself that is information, not a fault. With a reference
    that does not have them it is a warning; W308 restores the dots in the names where the reference expects the
    average.

Repair
    Where the reference expects the averaged weights under their own names, the two counters are dropped (``ckptdoctor
    fix FILE --drop decay --drop num_updates``). Confirmed: they matter only for averaging further. Where it expects the
    trained weights next to them, the whole average can be left out, by confirming it in a draft map (``--write-map``).
    Unsafe: those are weights, and perhaps the better ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, StateDict
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.edits import Safety
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.buffers import DECAY, UPDATES, LitEma, whole_or_part
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.leftovers import leftovers
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.dropping import unexpected_problem
from ckptdoctor.rules.kit.names_in_errors import dotless
from ckptdoctor.rules.when import keys_mention

_NET = {"blocks.7.1.weight": T((4, 3)), "blocks.7.1.bias": T((4,)), "out.weight": T((2, 4))}
_COUNTERS = {"decay": T(()), "num_updates": T((), "int32")}
_AVERAGE = {**_COUNTERS, **{key.replace(".", ""): value for key, value in _NET.items()}}
_BESIDE = {
    **{f"model.{key}": value for key, value in _NET.items()},
    **{f"model_ema.{key}": value for key, value in _AVERAGE.items()},
}
SICK = (
    Example("an average alone", {"state_dict": _AVERAGE}),
    Example("an average next to the trained weights", {"state_dict": _BESIDE, "epoch": 3}),
    Example("an average for the model", _AVERAGE, like=_NET),
    Example("trained weights for the model, and their average", _BESIDE, like=_NET),
)
HEALTHY = (
    Example(
        "an average of another class",
        {**{f"ema.{key}": value for key, value in _NET.items()}, "ema.decay": T(()), "ema.num_updates": T((), "int64")},
    ),
    Example("a model with counters of its own", {**_NET, **_COUNTERS}),
    Example(
        "a module with both of these names",
        {**_NET, "meter.decay": T(()), "meter.num_updates": T((), "int64")},
        like=_NET,
    ),
    Example("the target keeps the average, too", _BESIDE, like=_BESIDE),
)


@rule("N428", "lit-ema", Severity.WARNING, when=keys_mention("num_updates"))
def lit_ema(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report averages of LitEma, and its counters."""
    if isinstance(subject, Comparison):
        found = leftovers(subject).average
        if found is not None:
            yield _compared(subject, found)
        return
    for state_dict in subject.state_dicts:
        average = whole_or_part(state_dict) if state_dict.role in WEIGHTS else None
        if average is not None:
            yield _alone(state_dict, average)


def _alone(state_dict: StateDict, found: LitEma) -> Problem:
    beside = len(found.keys) < len(state_dict.tensors)
    number = wording.plural(len(found.tensors), "key")
    where = f' under "{found.prefix}"' if found.prefix else ""
    return Problem(
        message=f"{number}{wording.of_place(state_dict.path)}{where} {'is' if len(found.tensors) == 1 else 'are'} "
        "a running average (LitEma), with names that have lost their dots",
        cause=(
            "The average is next to the trained weights; their model has none of its keys."
            if beside
            else "Buffer names may not contain dots; only LitEma itself has such keys."
        ),
        torch_says=(wording.unexpected_line(found.keys),),
        advice=(
            "A model that keeps no average loads without it: fix leaves it out where a target is named."
            if beside and found.prefix
            else "With a target, the dots are restored: ckptdoctor fix FILE --auto --model MODULE:CLASS"
        ),
        keys=tuple([(*state_dict.path, key) for key in found.keys]),
        location=Location(path=state_dict.path),
        severity=Severity.INFO if beside else Severity.WARNING,
    )


def _compared(comparison: Comparison, found: LitEma) -> Problem:
    source = comparison.reference.source
    if not found.tensors:
        return unexpected_problem(
            comparison,
            found.keys,
            f"count the updates of a running average (LitEma), which {source} does not",
            "They matter only for averaging further.",
        )
    return unexpected_problem(
        comparison,
        found.keys,
        f"are a running average (LitEma), which {source} does not keep",
        "The trained weights are next to it. The average is often the better set: decide which of the two to keep.",
        Safety.UNSAFE,
    )


@judges(Turn.NAME)
def of_names(rest: IncompatibleKeys) -> Iterator[Cause]:
    """Keys under one name, or next to the counters of an average, are missing ones without their dots."""
    for lead, found in dotless(rest).items():
        counters = {lead + DECAY, lead + UPDATES}
        if not lead and not counters.issubset(rest.unexpected):
            continue  # names without dots, and no average
        named = f', under "{lead}"' if lead else ""
        meaning = f"the file holds averaged weights (LitEma{named}), whose names have no dots"
        beside = {key for key in rest.unexpected if lead and key.startswith(lead)}
        yield Cause(meaning, Repair.LOSS, missing=found.names, unexpected=found.unexpected | counters | beside)


@judges(Turn.LEFTOVER)
def of_counters(rest: IncompatibleKeys) -> Iterator[Cause]:
    """The counters of an average are left over under a name of their own, and with them the average."""
    for lead in [key.removesuffix(UPDATES) for key in rest.unexpected if key.endswith(f".{UPDATES}")]:
        average = {key for key in rest.unexpected if key.startswith(lead) and "." not in key[len(lead) :]}
        if lead + DECAY in average and average > {lead + DECAY, lead + UPDATES}:
            meaning = f'the file also holds averaged weights (LitEma, under "{lead}"), which the model does not keep'
            yield Cause(meaning, Repair.LOSS, unexpected=average)
