"""Decides for each checkpoint of a store whether it stays, and says why. Nothing is read here, and nothing moved.

Checkpoints that differ in the numbers of their names alone, and hold the same tensors, are a group: of each the newest
valid one stays, and the newest that training can resume from, whatever was asked. So ``generator_10.pt`` does not
replace ``discriminator_9.pt``, nor weights a full checkpoint. What nobody examined stays, and so does what something
that stays needs. Where nothing says which of a group is newer, all of it stays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from ckptdoctor.errors import UsageError
from ckptdoctor.noun import noun
from ckptdoctor.wording import count, listed


@noun
class Held:
    """One checkpoint of a store: a file or a folder by its absolute ``path``, and ``size`` in bytes on the disk.

    ``layout`` is one for checkpoints that hold the same tensors. ``trouble`` is why it is not valid, "" where it is;
    ``unsure`` why nothing is known of it. ``fresh``: it was changed so lately that it may still be written. ``needs``
    are paths that it cannot be used without. ``metric`` is the value of what is called ``metric_name``, of which less
    is better if ``mode`` is "min".
    """

    path: str
    run: str
    series: str
    layout: str = ""
    size: int = 0
    step: int | None = None
    epoch: float | None = None
    resumable: bool = False
    trouble: str = ""
    unsure: str = ""
    fresh: bool = False
    needs: tuple[str, ...] = ()
    metric: float | None = None
    metric_name: str = ""
    mode: str = ""

    @property
    def valid(self) -> bool:
        """Whether it was examined, and nothing was found that makes it invalid."""
        return not self.trouble and not self.unsure


@noun
class Pin:
    """What calls a checkpoint, or a file in one, by its path from outside: a link, a file ``latest``, an adapter."""

    source: str
    target: str


@noun
class Policy:
    """What is to stay, and not only what always does.

    ``last``: so many of the newest valid ones of each group; ``every``: those whose step is a multiple of it;
    ``best``: those with the best ``metric`` (a name, or name:min, name:max; "" where there is only one).
    ``broken``: what is invalid may go, too, once a newer valid one is there.
    """

    last: int = 0
    every: int = 0
    best: bool = False
    metric: str = ""
    broken: bool = False


@noun
class Verdict:
    """Whether a checkpoint stays, and why: one reason or more."""

    held: Held
    stays: bool
    reasons: tuple[str, ...]


@noun
class Plan:
    """A verdict for each checkpoint of a store, in the order of runs, and of steps in them."""

    verdicts: tuple[Verdict, ...]

    @property
    def going(self) -> tuple[Held, ...]:
        """What may go."""
        return tuple([each.held for each in self.verdicts if not each.stays])

    @property
    def staying(self) -> tuple[Held, ...]:
        """What stays."""
        return tuple([each.held for each in self.verdicts if each.stays])

    @property
    def freed(self) -> int:
        """The bytes of what may go."""
        return sum(each.size for each in self.going)


def plan(store: Iterable[Held], policy: Policy, pins: Sequence[Pin] = ()) -> Plan:
    """Return what stays of a store and what may go. Raises UsageError for a policy that says nothing, or not enough."""
    if policy.last < 0 or policy.every < 0:
        raise UsageError("--keep-last and --keep-every take a number of at least 1.")
    if not (policy.last or policy.every or policy.best):
        raise UsageError("Choose what to keep: --keep-last N, --keep-every STEPS, --keep-best, or several of them.")
    series: dict[tuple[str, str], list[Held]] = {}
    for each in store:
        series.setdefault((each.run, each.series), []).append(each)
    reasons: dict[str, list[str]] = {}
    order: list[Held] = []
    best = _best(series.values(), policy) if policy.best else None
    for key in sorted(series):
        order += _judge(series[key], policy, best, reasons)
    _keep_what_is_needed(order, pins, reasons)
    return Plan(tuple([_verdict(each, reasons[each.path]) for each in order]))


def _verdict(held: Held, reasons: Sequence[str]) -> Verdict:
    if reasons:
        return Verdict(held, True, tuple(reasons))
    return Verdict(
        held, False, (f"broken: {held.trouble}" if held.trouble else "a newer one stays, and no rule keeps it",)
    )


def _judge(
    series: Sequence[Held], policy: Policy, best: tuple[str, int] | None, reasons: dict[str, list[str]]
) -> list[Held]:
    """Write down why each of a series stays, and return it in its order, the oldest first."""
    for each in series:
        reasons[each.path] = list(_of_itself(each, policy))
    known = [each for each in series if not each.unsure]
    unknown = sorted([each for each in series if each.unsure], key=lambda each: each.path)
    place = _counter(known)
    if place is None:
        for each in known:
            reasons[each.path].append("nothing says which of these is the newest")
        return [*sorted(known, key=lambda each: each.path), *unknown]
    known.sort(key=lambda each: (place(each), each.path))
    groups: dict[str, list[Held]] = {}
    for each in known:
        if each.valid:
            groups.setdefault(each.layout, []).append(each)
    newest = max([place(group[-1]) for group in groups.values()], default=None)
    for each in known:
        if each.valid:
            reasons[each.path] += _among(each, groups[each.layout], policy, place)
        elif newest is None or place(each) >= newest:
            reasons[each.path].append("no newer one is valid")
    if best is not None:
        for group in groups.values():
            _keep_best(group, best, reasons)
    return [*known, *unknown]


def _of_itself(held: Held, policy: Policy) -> Iterator[str]:
    if held.unsure:
        yield f"nothing is known of it: {held.unsure}"
    elif held.trouble and not policy.broken:
        yield f"broken, which --broken would let go: {held.trouble}"
    elif held.trouble and held.fresh:
        yield "it was changed within the last hour, and may still be written"


def _among(held: Held, valid: Sequence[Held], policy: Policy, place: Callable[[Held], float]) -> Iterator[str]:
    """Yield why a valid checkpoint stays among those of its group; those at the same step stay together."""
    newest = place(valid[-1])
    if place(held) >= newest:
        yield "the newest valid one"
    elif policy.last and place(held) >= place(valid[-min(policy.last, len(valid))]):
        yield f"one of the last {count(policy.last)}"
    can_resume = [place(each) for each in valid if each.resumable]
    if held.resumable and can_resume[-1] <= place(held) < newest:
        yield "the newest that training can resume from"
    if policy.every and held.step is None:
        yield "it has no step that --keep-every could count"
    elif policy.every and held.step is not None and held.step % policy.every == 0:
        yield f"its step is a multiple of {count(policy.every)}"


def _counter(group: Sequence[Held]) -> Callable[[Held], float] | None:
    """Return what tells which of a group is newer, the step or else the epoch; None where nothing does.

    All must have it, and the other must not contradict it, as it does where a training began again in its folder.
    """
    if len(group) < 2:
        return lambda held: 0
    for counted, other in ((_step, _epoch), (_epoch, _step)):
        if any(counted(each) == _UNKNOWN for each in group):
            continue
        ordered = [other(each) for each in sorted(group, key=lambda each: (counted(each), other(each)))]
        known = [each for each in ordered if each != _UNKNOWN]
        return counted if known == sorted(known) else None
    return None


_UNKNOWN = -1.0


def _step(held: Held) -> float:
    return _UNKNOWN if held.step is None else held.step


def _epoch(held: Held) -> float:
    return _UNKNOWN if held.epoch is None else held.epoch


# ---- the best by a metric

_MOST_NAMED = 4


def _best(series: Iterable[Sequence[Held]], policy: Policy) -> tuple[str, int]:
    """Return the metric by which checkpoints are best, and -1 where less of it is better, or else 1."""
    modes: dict[str, set[str]] = {}
    for every in series:
        for each in every:
            if each.metric is not None:
                modes.setdefault(each.metric_name, set()).add(each.mode)
    there = sorted(modes)
    name, _, mode = policy.metric.partition(":")
    if not there:
        raise UsageError("No checkpoint has a metric, such as val_loss=0.12 in its name. Leave out --keep-best.")
    if not name and len(there) > 1:
        raise UsageError(f"Checkpoints have several metrics: {listed(there, _MOST_NAMED)}. Choose one with --metric.")
    name = name or there[0]
    if name not in there:
        raise UsageError(f"No checkpoint has the metric {name}. There are: {listed(there, _MOST_NAMED)}.")
    if mode not in ("", "min", "max"):
        raise UsageError(f"--metric {policy.metric}: end it with :min or :max.")
    known = modes[name] - {""}
    if not mode and len(known) != 1:
        raise UsageError(
            f"Nothing shows whether a lower or a higher {name} is better: add --metric {name}:min or {name}:max."
        )
    return name, -1 if (mode or known.pop()) == "min" else 1


def _keep_best(valid: Sequence[Held], best: tuple[str, int], reasons: dict[str, list[str]]) -> None:
    """Keep the best of a group, and what has no such metric: nobody knows how good it is."""
    name, sign = best
    known = [sign * each.metric for each in valid if each.metric is not None and each.metric_name == name]
    for each in valid:
        if each.metric is None or each.metric_name != name or each.metric != each.metric:
            reasons[each.path].append(f"its {name} is unknown")
        elif sign * each.metric == max(number for number in known if number == number):
            reasons[each.path].append(f"the best {name}: {each.metric:g}")


# ---- what is needed by what stays


def kept_after_all(made: Plan, pins: Sequence[Pin]) -> dict[str, str]:
    """Return what may go by a plan and stays with these pins as well, by its path, each with why."""
    reasons = {each.held.path: list(each.reasons) if each.stays else [] for each in made.verdicts}
    _keep_what_is_needed([each.held for each in made.verdicts], pins, reasons)
    return {each.path: reasons[each.path][0] for each in made.going if reasons[each.path]}


def _keep_what_is_needed(store: Sequence[Held], pins: Sequence[Pin], reasons: dict[str, list[str]]) -> None:
    """Keep what something needs that stays, and so on; and what has something in it that stays.

    What is needed may be a checkpoint, a file in one, or a folder with some in it.
    """
    needs = {each.path: each.needs for each in store}
    named = {path for every in needs.values() for path in every} | needs.keys() | {each.target for each in pins}
    within: dict[str, list[str]] = {}
    for path in needs:
        for outer in _folders_around(path):
            if outer in named:
                within.setdefault(outer, []).append(path)

    def meant(path: str) -> list[str]:
        return [path, *_folders_around(path), *within.get(path, ())]

    kept = [path for path, why in reasons.items() if why]

    def keep(path: str, why: str) -> None:
        if path in reasons and not reasons[path]:
            reasons[path].append(why)
            kept.append(path)

    for pin in pins:
        for each in meant(pin.target):
            keep(each, f"{pin.source} names it")
    while kept:
        path = kept.pop()
        for each in _folders_around(path):
            keep(each, f"{path} is in it, and stays")
        for each in within.get(path, ()):
            keep(each, f"it is in {path}, which stays")
        for wanted in needs[path]:
            for each in meant(wanted):
                keep(each, f"{path} needs it, and stays")


def _folders_around(path: str) -> Iterator[str]:
    while (outer := os.path.dirname(path)) != path:
        yield outer
        path = outer
