"""The file has running stats for layers whose target keeps none.

Meaning
    Before torch 0.4 InstanceNorm always saved ``running_mean`` and ``running_var``, though it did not use them. Since
    then it does so only with ``track_running_stats=True``; the target's layers are made without it, or are norm layers
    that track nothing (GroupNorm, LayerNorm).

Why it matters
    ``load_state_dict`` fails. In a file of torch before 0.4 the stats are useless; in a later one the saved layers did
    use them in evaluation, and without them the model computes something else.

Symptoms
    Unexpected running stats buffer(s) "norm1.running_mean" and "norm1.running_var" for InstanceNorm2d with
    track_running_stats=False. If state_dict is a checkpoint saved before 0.4.0, this may be expected …
    Or, where the file says which versions its modules had:
    Unexpected key(s) in state_dict: "norm1.running_mean", "norm1.running_var".

Detection
    Only with a reference: ``running_mean`` and ``running_var`` of one size that the reference does not have, in layers
    whose other parameters fit; or that have no parameters at all, right after a weight with as many channels. R002
    reports layers that the target does not have.

Repair
    ``ckptdoctor fix FILE --drop '*.running_mean' --drop '*.running_var'``, with their counters. Confirmed where the
    layers have no parameters, no counter and no version: only torch before 0.4 saved that. Otherwise unsafe: a model
    that needs them has to be built with ``track_running_stats=True``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.edits import Safety
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.leftovers import leftovers
from ckptdoctor.match.norms import COUNTER, STATS, RunningStats, inside, leaf, module_of
from ckptdoctor.rules.examples import Example, Odict, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.incompatible_keys import Cause, IncompatibleKeys, Repair, Turn, judges, some_keys
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.dropping import drop_fix, keys_of_all
from ckptdoctor.rules.messages import Way

_BARE = {"0.weight": T((4, 3, 3, 3)), "0.bias": T((4,)), "3.weight": T((2, 4, 3, 3))}
_OLD = {
    "0.weight": T((4, 3, 3, 3)),
    "0.bias": T((4,)),
    "1.running_mean": T((4,)),
    "1.running_var": T((4,)),
    "3.weight": T((2, 4, 3, 3)),
}
_AFFINE = {"conv.weight": T((4, 3, 3, 3)), "norm.weight": T((4,)), "norm.bias": T((4,))}
_STATS = {"norm.running_mean": T((4,)), "norm.running_var": T((4,))}
_TRACKED: dict[str, object] = {**_AFFINE, **_STATS, "norm.num_batches_tracked": T((), "int64")}
SICK = (
    Example("instance norms of torch before 0.4", _OLD, like=_BARE),
    Example("instance norms with parameters", {**_AFFINE, **_STATS}, like=_AFFINE),
    Example("instance norms that tracked", Odict(_TRACKED, {"": {"version": 1}, "norm": {"version": 2}}), like=_AFFINE),
)
HEALTHY = (
    Example("a target that tracks", _TRACKED, like=_TRACKED),
    Example("a target without the layer", _TRACKED, like={"conv.weight": T((4, 3, 3, 3))}),
    Example("an input normalizer", {"obs.running_mean": T((5,)), "obs.running_var": T((5,)), **_BARE}, like=_BARE),
    Example(
        "a layer with other keys of its own",
        {**_OLD, "1.count": T((), "int64")},
        like=_BARE,
    ),
)


@rule("N418", "unexpected-running-stats", Severity.ERROR)
def unexpected_running_stats(comparison: Comparison) -> Iterator[Problem]:
    """Report running stats in layers that keep none in the target."""
    found = leftovers(comparison).stats
    if not found:
        return
    keys = tuple([key for each in found for key in each.keys])
    old = all(each.old and each.bare for each in found)
    fix, advice = drop_fix(comparison, keys, Safety.CONFIRMED if old else Safety.UNSAFE)
    build = (
        "" if old else "If the model should compute the same as before, build it with track_running_stats=True instead."
    )
    yield Problem(
        message=f"{keys_of_all(comparison, keys)} are running stats of {wording.plural(len(found), 'layer')} that "
        f"{'keeps' if len(found) == 1 else 'keep'} none in {comparison.reference.source}",
        cause=_cause(found),
        torch_says=_torch_says(comparison, found),
        advice=" ".join(filter(None, (advice, build))),
        keys=tuple([comparison.renamed.here[key].path for key in keys]),
        location=Location(path=comparison.path),
        fix=fix,
    )


def _cause(found: tuple[RunningStats, ...]) -> str:
    if all(each.old for each in found):
        said = "There are no counters and no versions with them: torch before 0.4 saved InstanceNorm like that, and "
        if all(each.bare for each in found):
            return f"{said}did not use the stats."
        return f"{said}did not use the stats; BatchNorm too, which did use them."
    return (
        "The saved layers tracked running stats and used them in evaluation; the target's are InstanceNorm with "
        "track_running_stats=False, or other layers that track nothing."
    )


def _torch_says(comparison: Comparison, found: tuple[RunningStats, ...]) -> tuple[str, ...]:
    """Return InstanceNorm's own line for layers without a version in the file, the usual one for all else."""
    own = [each for each in found if each.unversioned]
    taken = {key for each in own for key in each.stats}
    rest = [key for each in found for key in each.keys if key not in taken]
    lines = [_refusal(each) for each in own[: wording.SHOWN]]
    return ((wording.unexpected_line(rest),) if rest else ()) + tuple(lines)


def _refusal(found: RunningStats) -> str:
    """Quote ``torch.nn.modules.instancenorm._InstanceNorm._load_from_state_dict``."""
    layer = f"InstanceNorm{found.dims}d"
    names = " and ".join([f'"{key}"' for key in sorted(found.stats)])
    return (
        f"Unexpected running stats buffer(s) {names} for {layer} with track_running_stats=False. If state_dict is a "
        f"checkpoint saved before 0.4.0, this may be expected because {layer} does not track running stats by default "
        "since 0.4.0. Please remove these keys from state_dict. If the running stats are actually needed, instead set "
        f"track_running_stats=True in {layer} to enable them. See the documentation of {layer} for details."
    )


@judges(Turn.LEFTOVER)
def of_names(rest: IncompatibleKeys) -> Iterator[Cause]:
    """torch refuses the statistics of InstanceNorm by name, and those of other layers as unexpected."""
    unexpected, known = set(rest.unexpected), {module_of(key) for key in rest.missing}
    modules = {module_of(key) for key in rest.error.running_stats}
    modules |= {
        module_of(key)
        for key in rest.unexpected
        if leaf(key) == STATS[0] and inside(module_of(key), STATS[1]) in unexpected and module_of(key) not in known
    }
    # what else of the layer is left over makes it a whole layer that the model has not
    modules -= {module_of(key) for key in rest.unexpected if leaf(key) not in (*STATS, COUNTER)}
    found = [key for key in rest.unexpected if leaf(key) in (*STATS, COUNTER) and module_of(key) in modules]
    if not found:
        return
    whose = (
        "the layers that were saved counted their batches, as BatchNorm does, and used the statistics in evaluation"
        if any(leaf(key) == COUNTER for key in found)
        else "before torch 0.4 InstanceNorm saved them without using them; since then only layers made with "
        "track_running_stats=True do"
    )
    meaning = (
        f"the file holds running statistics of norm layers that keep none in the model, {some_keys(found)}: {whose}"
    )
    drop = Way("leave them out", "ckptdoctor fix FILE --auto TARGET --unsafe-fixes")
    ways = (drop, Way("or build the layers with", "track_running_stats=True"))
    yield Cause(meaning, Repair.LOSS, ways, unexpected=found)
