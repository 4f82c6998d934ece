"""The optimizer's states are not in the order of the model's parameters.

Meaning
    An optimizer knows its parameters by number only: number 7 is the eighth that it was given. This one was given them
    in a different order from the model's, or its model was rearranged since.

Why it matters
    ``Optimizer.load_state_dict`` checks numbers, not shapes. An optimizer made from ``model.parameters()`` silently
    accepts the state; then the first step fails, or, where shapes are equal, every parameter is updated with another's
    moments.

Symptoms
    The size of tensor a (2048) must match the size of tensor b (7) at non-singleton dimension 0
    Or nothing, and a loss that jumps after resuming.

Detection
    The shapes of the moments (``exp_avg``, ``momentum_buffer`` and the like), one after another, are those of the
    model's tensors, but in another order. Frozen parameters and buffers may be left out. Several parameter groups are
    not checked, since groups rearrange; unless the optimizer recorded names (``param_names``), which show exactly whose
    moments these should be. With a reference the order of its keys counts, for names and shapes.

Repair
    ``ckptdoctor fix FILE --remap-optimizer --model nets:Net`` (or ``--like OTHER``) numbers the states as the target
    does, and puts the weights in its order: no value changes. ``param_names`` show which state belongs to which
    parameter, or otherwise the shapes and the order of the weights in the file; where several parameters are possible,
    nothing is done. Without a target the order is that of the weights in the same file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict, show_path
from ckptdoctor.facts import names
from ckptdoctor.facts.optimizers import SavedOptimizer, Slot, clashes, in_order, saved_optimizers
from ckptdoctor.facts.weight_sets import Candidate, candidates, expected_candidates, only_model, ordered
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


def _adam(*shapes: tuple[int, ...], groups: Sequence[int] = (), labels: Sequence[str] = ()) -> dict[str, object]:
    state = {number: {"step": T(()), "exp_avg": T(shape)} for number, shape in enumerate(shapes)}
    ends = [*groups, len(shapes)]
    starts = [0, *groups]
    saved = [
        {"lr": 0.1, "params": list(range(start, end)), **({"param_names": list(labels[start:end])} if labels else {})}
        for start, end in zip(starts, ends, strict=True)
    ]
    return {"state": state, "param_groups": saved}


_NET = {"conv.weight": T((4, 3)), "bn.weight": T((4,)), "bn.running_mean": T((4,)), "fc.weight": T((2, 4))}
_TWINS = {"b.weight": T((3, 3)), "a.weight": T((3, 3))}
_TURNED = {"fc.weight": T((2, 4)), "conv.weight": T((4, 3)), "bn.weight": T((4,)), "bn.running_mean": T((4,))}
MESSAGES = (
    Message(
        ("must match the size of tensor b",),
        "the optimizer's state belongs to other parameters: it accepted the state, but their order is "
        "different now. Where sizes agree by chance, there is no error at all",
        (Way("give it the parameters in the saved order, then", "optimizer.load_state_dict(state)"), START_OVER),
        near=("optimizer.step", "torch/optim", "torch\\optim", "exp_avg", "momentum_buffer"),
    ),
)
SICK = (
    Example("the last layer first", {"model": _NET, "optimizer": _adam((2, 4), (4, 3), (4,))}),
    Example(
        "moments that belong to another parameter by name",
        {"model": _NET, "o": _adam((2, 4), (4,), (4, 3), groups=[1], labels=["conv.weight", "bn.weight", "fc.weight"])},
    ),
    Example(
        "names in a different order from the model's",
        {"model": _TWINS, "optimizer": _adam((3, 3), (3, 3), labels=["a.weight", "b.weight"])},
    ),
    Example("a target in another order", {"model": _NET, "optimizer": _adam((4, 3), (4,), (2, 4))}, like=_TURNED),
)
HEALTHY = (
    Example("the model's order", {"model": _NET, "optimizer": _adam((4, 3), (4,), (2, 4))}),
    Example("frozen layers left out", {"model": _NET, "optimizer": _adam((4,), (2, 4))}),
    Example("groups with and without decay", {"model": _NET, "optimizer": _adam((4, 3), (2, 4), (4,), groups=[2])}),
    Example("the optimizer of another model", {"model": _NET, "optimizer": _adam((9, 9), (4, 3))}),
    Example("the same target", {"model": _NET, "optimizer": _adam((4, 3), (4,), (2, 4))}, like=_NET),
    Example(
        "groups with names",
        {"model": _NET, "o": _adam((2, 4), (4, 3), (4,), groups=[1], labels=["fc.weight", "conv.weight", "bn.weight"])},
    ),
)


@rule("O752", "optimizer-order-mismatch", Severity.WARNING, when=has(Role.OPTIMIZER))
def optimizer_order_mismatch(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report optimizers whose states are in another order than the parameters."""
    checkpoint = subject.checkpoint if isinstance(subject, Comparison) else subject
    optimizers = saved_optimizers(checkpoint)
    model = only_model(checkpoint) if optimizers else None
    if model is None:
        return
    here = candidates(model)
    for optimizer in optimizers:
        compared = subject if isinstance(subject, Comparison) and model is subject.state_dict else None
        fix, reason = remap_fix(compared or checkpoint, optimizer)
        found = _of_another(optimizer, here)
        if found is None and compared is not None:
            found = _turned_since(optimizer, model, here, compared) or _turned_in_groups(optimizer, model, compared)
        if found is None and (fix is not None or reason or compared is None):
            found = _turned(optimizer, model, here)
        if found is not None:
            yield replace(found, fix=fix, advice=f"{found.advice} {reason}".rstrip())


def _of_another(optimizer: SavedOptimizer, here: Sequence[Candidate]) -> Problem | None:
    """Return states that have not the shape of the parameter whose name they carry, but that of another."""
    labels = optimizer.names
    if labels is None:
        return None
    shapes = {each.key: each for each in here}
    if not all(name in shapes for name in labels):
        return None
    wanted = [shapes[name] for name in labels]
    if not clashes(optimizer.slots, wanted) or not among(optimizer.slots, wanted):
        return None
    return _problem(
        optimizer,
        f"the states of {show_path(optimizer.path)} do not belong to the parameters that it names",
        wanted,
        Severity.ERROR,
    )


def _turned(optimizer: SavedOptimizer, model: StateDict, here: Sequence[Candidate]) -> Problem | None:
    """Return one group in another order than the model next to it."""
    if len(optimizer.groups) != 1 or not ordered(here) or _follows(optimizer, here):
        return None
    return _problem(
        optimizer,
        f"the states of {show_path(optimizer.path)} are not in the order of the parameters{_of(model)}",
        here,
    )


def _of(model: StateDict) -> str:
    return wording.of_place(model.path) or " of the model"


def _follows(optimizer: SavedOptimizer, wanted: Sequence[Candidate]) -> bool:
    """Return whether the order is the wanted one, as far as names or else shapes tell."""
    labels = optimizer.names
    numbers = {each.key: number for number, each in enumerate(wanted)}
    if labels is not None and all(name in numbers for name in labels):
        places = [numbers[name] for name in labels]
        return places == sorted(places)
    slots = optimizer.slots
    if len(slots) > len(wanted):  # those without a state may be of parameters that are not in the file
        slots = tuple([slot for slot in slots if slot.has_state])
    return in_order(slots, wanted) or not among(slots, wanted)


def _turned_since(
    optimizer: SavedOptimizer, model: StateDict, here: Sequence[Candidate], comparison: Comparison
) -> Problem | None:
    """Return one group in the order of the weights here, which is not that of the reference."""
    there = expected_candidates(comparison.reference.tensors)
    if len(optimizer.groups) != 1 or comparison.uncovered or not ordered(here) or not ordered(there):
        return None
    named = _named(optimizer, here)
    if named is None:
        known = in_order(optimizer.slots, here) and among(optimizer.slots, there)
        same = not known or in_order(optimizer.slots, there)
    else:
        finals = {names.bare(key): comparison.final_name(key) for key in names.keys_of(model)}
        numbers = {each.key: number for number, each in enumerate(there)}
        places = [numbers.get(finals[key], -1) for key in named]
        same = -1 in places or places == sorted(places)
    if same:
        return None
    return _problem(optimizer, _since(optimizer, comparison), there)


def _since(optimizer: SavedOptimizer, comparison: Comparison) -> str:
    source = comparison.reference.source
    return f"the parameters of {source} are not in the order of the states of {show_path(optimizer.path)}"


def _turned_in_groups(optimizer: SavedOptimizer, model: StateDict, comparison: Comparison) -> Problem | None:
    """Return groups of the same sizes as those of the target, with other parameters or in another order."""
    found = None if comparison.uncovered else wanted_remap(comparison, model, optimizer)
    if found is None or found.regroups(optimizer):
        return None
    names = [name for _, group in found.groups for name in group]
    tensors = comparison.reference.tensors
    wanted = [Candidate(name, tensors[name].shape) for name in names if name in tensors]
    return _problem(optimizer, _since(optimizer, comparison), wanted)


def _named(optimizer: SavedOptimizer, here: Sequence[Candidate]) -> tuple[str, ...] | None:
    """Return what the optimizer's parameters are called: as it says, or as the model does where it has them all."""
    if optimizer.names is not None:
        known = {each.key for each in here}
        return optimizer.names if all(name in known for name in optimizer.names) else None
    complete = len(optimizer.slots) == len(here) and not clashes(optimizer.slots, here)
    return tuple([each.key for each in here]) if complete else None


def _problem(
    optimizer: SavedOptimizer, message: str, wanted: Sequence[Candidate], severity: Severity | None = None
) -> Problem:
    order = optimizer.names if severity is None and optimizer.names else by_shape(optimizer.slots, wanted)
    told = f"Its order is {wording.abridged(order)}. " if order else ""
    return Problem(
        message=message,
        cause="An optimizer only uses numbers: one made from model.parameters() silently accepts this state, and "
        "then updates parameters with the moments of others, or fails at step().",
        torch_says=_torch(optimizer.slots, wanted),
        advice=f"{told}Give the new optimizer its parameters in the old order, or start with a fresh one.",
        keys=(optimizer.path,),
        location=Location(path=optimizer.path),
        severity=severity,
    )


def _torch(slots: Sequence[Slot], wanted: Sequence[Candidate]) -> tuple[str, ...]:
    """Return what the first step says.

    Gradients go into states, of all parameters first, and then states into parameters.
    """
    if len(slots) != len(wanted):  # what was left out the file does not tell
        return ()
    pairs = [(state, parameter) for _, state, parameter in clashes(slots, wanted)]
    steps = [in_place_refusal(state, parameter) for state, parameter in pairs]
    steps += [in_place_refusal(parameter, state) for state, parameter in pairs]
    return tuple([line for line in steps if line is not None][:1])


# How torch words its refusal to work in place on tensors of two shapes

_Shape = tuple[int, ...]


def in_place_refusal(output: _Shape, other: _Shape) -> str | None:
    """Return what ``output.add_(other)`` says.

    It is None where it works (at::infer_size, TensorIteratorBase::compute_shape).
    """
    rank = max(len(output), len(other))
    together = []
    for back, (one, two) in enumerate(zip_longest(reversed(output), reversed(other), fillvalue=1), 1):
        if one != two and 1 not in (one, two):
            text = f"The size of tensor a ({one}) must match the size of tensor b ({two})"
            return f"{text} at non-singleton dimension {rank - back}"
        together.append(two if one == 1 else one)
    broadcast = tuple(reversed(together))
    if broadcast == output:
        return None
    shapes = f"{wording.shape(output)} doesn't match the broadcast shape {wording.shape(broadcast)}"
    return f"output with shape {shapes}"


# Whether the parameters of an optimizer can be those of a model, told by their shapes


def among(slots: Iterable[Slot], wanted: Iterable[Candidate]) -> bool:
    """Return whether in some order they would fit: every shape of the optimizer's is there, and as often."""
    return Counter([slot.shape for slot in slots if slot.shape is not None]) <= Counter([each.shape for each in wanted])


def by_shape(slots: Iterable[Slot], wanted: Iterable[Candidate]) -> list[str] | None:
    """Return the keys that the optimizer's parameters must have, in its order, where shapes allow one only."""
    keys: dict[tuple[int, ...], list[str]] = {}
    for each in wanted:
        keys.setdefault(each.shape, []).append(each.key)
    found = [keys.get(slot.shape, []) if slot.shape is not None else [] for slot in slots]
    return [key for owners in found for key in owners] if all(len(owners) == 1 for owners in found) else None
