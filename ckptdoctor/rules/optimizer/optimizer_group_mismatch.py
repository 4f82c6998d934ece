"""The optimizer has a state for more parameters than there are weights.

Meaning
    The optimizer was made for another model than the one that was saved with it, or for more than that: for a loss with
    weights of its own, or for layers that were left out of the file.

Why it matters
    ``Optimizer.load_state_dict`` compares the number of parameters group by group and rejects any difference.
    Parameters that the optimizer trained beyond these weights are lost.

Symptoms
    loaded state dict contains a parameter group that doesn't match the size of optimizer's group

Detection
    The parameters with a state are counted, and so are the tensors anywhere in the file that can be parameters: those
    with a floating dtype that are not running statistics, tied ones once. Only more states than tensors are reported:
    fewer are normal, since frozen layers have none. With a reference its tensors are counted as well, and the names
    that the optimizer recorded (``param_names``) are looked up in it; if the reference is a file with an optimizer, or
    a model with frozen parameters, the groups are compared with its groups.

Repair
    ``ckptdoctor fix FILE --remap-optimizer --model nets:Net`` (or ``--like OTHER``, a file with an optimizer that has
    the right groups) splits, joins and orders the groups as the target does. Parameters that are new begin without a
    state; states without a parameter are dropped only with ``--unsafe-fixes``. Where neither names nor shapes show
    which state belongs to which parameter, nothing is done: start with a fresh optimizer, or leave this one out with
    ``--drop optimizer``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Role, show_path
from ckptdoctor.facts import names
from ckptdoctor.facts.optimizers import SavedOptimizer, saved_optimizers
from ckptdoctor.facts.weight_sets import candidates, expected_candidates, may_train, only_model, untied
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.match.optimizer_order import wanted_remap
from ckptdoctor.noun import replace
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import START_OVER, Message, Way
from ckptdoctor.rules.optimizer.remapping import remap_fix
from ckptdoctor.rules.when import has


def _adam(*shapes: tuple[int, ...], frozen: int = 0) -> dict[str, object]:
    state = {number: {"step": T(()), "exp_avg": T(shape)} for number, shape in enumerate(shapes)}
    return {"state": state, "param_groups": [{"lr": 0.1, "params": list(range(len(shapes) + frozen))}]}


_NET = {"conv.weight": T((4, 3)), "bn.running_mean": T((4,)), "fc.weight": T((2, 4)), "fc.bias": T((2,))}
_BODY = {"conv.weight": T((4, 3)), "bn.running_mean": T((4,))}
_WHOLE = _adam((4, 3), (2, 4), (2,))
MESSAGES = (
    Message(
        ("doesn't match the size of optimizer's group",),
        "the optimizer does not have the number of parameters that it had when it was saved: layers were "
        "frozen, added, removed, or put into other groups",
        (Way("build the model and its groups as they were, then", "optimizer.load_state_dict(state)"), START_OVER),
    ),
    Message(
        ("loaded state dict has a different number of parameter groups",),
        "the optimizer was saved with a different number of parameter groups (for example with separate weight decay)",
        (Way("build the groups as they were, then", "optimizer.load_state_dict(state)"), START_OVER),
    ),
)
SICK = (
    Example("the weights of a layer are missing", {"model": _BODY, "optimizer": _WHOLE}),
    Example("buffers do not count", {"model": {**_BODY, "a.num_batches_tracked": T((), "int64")}, "opt": _WHOLE}),
    Example("a smaller target", {"model": _NET, "optimizer": _WHOLE}, like=_BODY),
    Example("a larger target", {"model": _NET, "optimizer": _WHOLE}, like={**_NET, "fc2.weight": T((2, 2))}),
)
HEALTHY = (
    Example("a state for every parameter", {"model": _NET, "optimizer": _WHOLE}),
    Example("frozen layers", {"model": _NET, "optimizer": _adam((2, 4), (2,))}),
    Example("frozen layers that were left out", {"model": _BODY, "optimizer": _adam((4, 3), frozen=2)}),
    Example("a loss saved apart", {"model": _BODY, "criterion": {"w": T((2, 4)), "b": T((2,))}, "optimizer": _WHOLE}),
    Example("an optimizer's file", _WHOLE),
    Example("the same target", {"model": _NET, "optimizer": _WHOLE}, like=_NET),
)

_TORCH = "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
_NUMBER = "loaded state dict has a different number of parameter groups"
_SHOWN = 4  # groups whose sizes are told
_ADVICE = "Start with a fresh optimizer, or build the model that this one was made for."


@rule("O751", "optimizer-group-mismatch", Severity.WARNING, when=has(Role.OPTIMIZER))
def optimizer_group_mismatch(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report optimizers with states for more parameters than there are."""
    checkpoint = subject.checkpoint if isinstance(subject, Comparison) else subject
    optimizers = saved_optimizers(checkpoint)
    if not optimizers:
        return
    model = only_model(checkpoint)
    room = _trainable(checkpoint)
    for optimizer in optimizers:
        compared = subject if isinstance(subject, Comparison) and model is subject.state_dict else None
        found: Iterable[Problem] = ()
        if room and _trained(optimizer) > room:
            found = [_too_many(optimizer, room)]
        elif compared is not None:
            found = list(_compared(compared, optimizer)) if len(optimizers) == 1 else ()
            found = found or _regrouped(compared, optimizer)
        for each in found:
            fix, reason = (None, "") if compared is None else remap_fix(compared, optimizer)
            yield replace(each, fix=fix, advice=f"{each.advice} {reason}".rstrip())


def _trained(optimizer: SavedOptimizer) -> int:
    return sum([slot.has_state for slot in optimizer.slots])


def _too_many(optimizer: SavedOptimizer, room: int) -> Problem:
    trained = _trained(optimizer)
    return Problem(
        message=f"{show_path(optimizer.path)} has the states of {wording.plural(trained, 'parameter')}, "
        f"but only {wording.plural(room, 'tensor')} in the file can be {'a parameter' if room == 1 else 'parameters'}",
        cause="Trained weights are not in the file, or the optimizer belongs to another model.",
        torch_says=(_TORCH,),
        advice=_ADVICE,
        keys=(optimizer.path,),
        location=Location(path=optimizer.path),
    )


def _compared(comparison: Comparison, optimizer: SavedOptimizer) -> Iterator[Problem]:
    """Yield how an optimizer that fits the weights next to it differs from the reference."""
    if comparison.uncovered or comparison.state_dict is None:
        return
    source = comparison.reference.source
    here = len(candidates(comparison.state_dict))
    there = len(expected_candidates(comparison.reference.tensors))
    trained, number = _trained(optimizer), len(optimizer.slots)
    strangers = _strangers(comparison, optimizer)
    if trained > there or strangers:
        named = f", such as {wording.abridged(strangers)}" if strangers else ""
        yield _unfit(
            optimizer,
            f"has the states of {wording.plural(trained, 'parameter')}, {source} has "
            + (f"not all of them{named}" if strangers else f"only {there:,}"),
            Severity.WARNING,
        )
    elif trained == number == here < there:
        yield _unfit(
            optimizer,
            f"has the states of all {wording.plural(number, 'parameter')} here, {source} has up to {there:,}",
            Severity.INFO,
        )


def _regrouped(comparison: Comparison, optimizer: SavedOptimizer) -> Iterator[Problem]:
    """Yield how the groups of the target are others, as far as that is beyond doubt."""
    if comparison.uncovered or comparison.state_dict is None:
        return
    found = wanted_remap(comparison, comparison.state_dict, optimizer)
    if found is None or not found.regroups(optimizer):
        return
    here, there = (
        [len(group) for group in groups] for groups in (optimizer.groups, [each for _, each in found.groups])
    )
    yield replace(
        _unfit(optimizer, f"has {_sizes(here)}, {comparison.reference.source} has {_sizes(there)}", Severity.WARNING),
        torch_says=(_TORCH if len(here) == len(there) else _NUMBER,),
    )


def _sizes(groups: Sequence[int]) -> str:
    of = wording.listed([f"{size:,}" for size in groups]) if len(groups) <= _SHOWN else f"{sum(groups):,}"
    return f"{wording.plural(len(groups), 'group')} of {of} parameters"


def _strangers(comparison: Comparison, optimizer: SavedOptimizer) -> list[str]:
    """Return trained parameters' names that are keys of the weights here, and not in the reference."""
    if optimizer.names is None or comparison.state_dict is None:
        return []
    finals = {names.bare(key): comparison.final_name(key) for key in names.keys_of(comparison.state_dict)}
    return [
        slot.name
        for slot in optimizer.slots
        if slot.has_state
        and slot.name is not None
        and slot.name in finals
        and finals[slot.name] not in comparison.reference.tensors
    ]


def _unfit(optimizer: SavedOptimizer, words: str, severity: Severity) -> Problem:
    return Problem(
        message=f"{show_path(optimizer.path)} {words}",
        cause="An optimizer over all parameters of the target rejects this state; the weights load without it.",
        torch_says=(_TORCH,),
        advice=_ADVICE,
        keys=(optimizer.path,),
        location=Location(path=optimizer.path),
        severity=severity,
    )


_NOT_TRAINED = (Role.OPTIMIZER, Role.SCHEDULER, Role.RNG)


def _trainable(checkpoint: Checkpoint) -> int:
    """Return how many tensors anywhere in the file, outside the states of optimizers, can be parameters at all."""
    outside = {id(tensor) for each in checkpoint.state_dicts if each.role in _NOT_TRAINED for tensor in each.tensors}
    found = [each for each in checkpoint.tensors if id(each) not in outside and may_train(each.key, each.dtype)]
    return sum(1 for _ in untied(found))
