"""The learning rate scheduler does not match the optimizer in the file.

Meaning
    It was made for a different number of parameter groups, or the learning rates that it set last are not those of the
    optimizer: the groups were changed, or one of the two is from another save.

Why it matters
    A scheduler that computes from its own list of rates (``LambdaLR``, and with it most warm-ups) refuses to continue
    when the numbers differ. Where only the rates differ, training resumes with those of the optimizer.

Symptoms
    ValueError: zip() argument 2 is longer than argument 1
    Or a learning rate that jumps at the next step.

Detection
    Only in a file with one optimizer and one scheduler: the number of ``base_lrs`` is compared with the parameter
    groups, and ``_last_lr`` with the groups' ``lr``. A warning where the numbers of a ``LambdaLR`` differ; other
    schedulers, and rates, are info.

Repair
    Where the numbers differ, ``ckptdoctor fix FILE --drop scheduler --unsafe-fixes`` leaves the scheduler out: make a
    new one at the right step. Nothing is proposed for rates: those of the optimizer win anyway.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Node, Part, Role, show_path
from ckptdoctor.facts.optimizers import as_number
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.optimizer.saved_states import Optimizer, forget, numbers_in, optimizer_states, schedulers
from ckptdoctor.rules.when import has

_NEAR = 1e-9  # the part of a rate by which two may differ
_SHOWN = 3


def _saved(scheduler: dict[str, object], *rates: float) -> dict[str, object]:
    groups = [{"lr": rate, "params": [number]} for number, rate in enumerate(rates)]
    return {
        "model": {"fc.weight": T((2, 4)), "fc.bias": T((2,))},
        "optimizer": {"state": {0: {"momentum_buffer": T((2, 4))}}, "param_groups": groups},
        "scheduler": {"last_epoch": 3, "_step_count": 4, **scheduler},
    }


MESSAGES = (
    Message(
        ("KeyError: 'lr_lambdas'", "KeyError: 'last_epoch'", "KeyError: 'lr_schedulers'", "KeyError: 'lr_scheduler'"),
        "the scheduler's state is missing, or belongs to a different class",
        (Way("see what it holds", "ckptdoctor show FILE"),),
    ),
)
SICK = (
    Example("a rate for each of two groups", _saved({"base_lrs": [0.1, 0.1], "_last_lr": [0.1, 0.1]}, 0.1)),
    Example("a warm-up of one group", _saved({"base_lrs": [0.1], "lr_lambdas": [None]}, 0.1, 0.2)),
    Example("not the rate that it set", _saved({"base_lrs": [0.1], "_last_lr": [0.01]}, 0.1)),
)
HEALTHY = (
    Example("one of each", _saved({"base_lrs": [0.1], "_last_lr": [0.01]}, 0.01)),
    Example("two groups", _saved({"base_lrs": [0.1, 0.2], "_last_lr": [0.1, 0.2]}, 0.1, 0.2)),
    Example("a scheduler's file", {"base_lrs": [0.1], "last_epoch": 3, "_step_count": 4, "_last_lr": [0.01]}),
)


@rule("O758", "scheduler-mismatch", Severity.INFO, when=has(Role.OPTIMIZER, Role.SCHEDULER))
def scheduler_mismatch(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report schedulers that disagree with the only optimizer."""
    found = schedulers(checkpoint)
    if len(found) != 1 or len(optimizer_states(checkpoint)) != 1:
        return
    [(path, parts)], [optimizer] = found, optimizer_states(checkpoint)
    if optimizer.groups:
        yield from _number(path, parts, optimizer) or _rates(path, parts, optimizer)


def _number(path: KeyPath, parts: dict[Part, Node], optimizer: Optimizer) -> list[Problem]:
    rates = numbers_in(parts.get("base_lrs"))
    groups = len(optimizer.groups)
    if rates is None or len(rates) == groups:
        return []
    computes = "lr_lambdas" in parts
    which = "longer" if len(rates) > groups else "shorter"
    return [
        Problem(
            message=f"{show_path(path)} was made for {wording.plural(len(rates), 'parameter group')}, "
            f"{show_path(optimizer.path)} has {groups:,}",
            cause="Groups were added or removed, or one of the two is from another save."
            + (" A LambdaLR refuses to continue." if computes else ""),
            torch_says=(f"ValueError: zip() argument 2 is {which} than argument 1",) if computes else (),
            advice="Make a new scheduler at the right step, and leave this one out.",
            keys=(path,),
            location=Location(path=path),
            fix=forget(path, show_path(path)),
            severity=Severity.WARNING if computes else Severity.INFO,
        )
    ]


def _rates(path: KeyPath, parts: dict[Part, Node], optimizer: Optimizer) -> list[Problem]:
    last = numbers_in(parts.get("_last_lr"))
    given = [group.options.get("lr") for group in optimizer.groups]
    now = [each for each in map(as_number, given) if each is not None]
    if last is None or len(last) != len(given) or len(now) != len(given):
        return []
    if all(abs(one - other) <= _NEAR * max(abs(one), abs(other)) for one, other in zip(last, now, strict=True)):
        return []
    return [
        Problem(
            message=f"{show_path(path)} set the learning rate to {_shown(last)}, {show_path(optimizer.path)} has "
            f"{_shown(now)}",
            cause="Something else changed it after the scheduler's last step; training resumes with the optimizer's.",
            keys=(path, optimizer.path),
            location=Location(path=path),
        )
    ]


def _shown(rates: tuple[float, ...] | list[float]) -> str:
    return wording.abridged([f"{rate:g}" for rate in rates], _SHOWN)
