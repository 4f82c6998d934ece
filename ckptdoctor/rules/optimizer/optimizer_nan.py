"""The optimizer's state holds NaN, infinity, or a negative square.

Meaning
    Training diverged and continued, gradients overflowed in half precision, or bytes were damaged. ``exp_avg_sq`` is a
    mean of squares: a negative value, as after averaging or arithmetic on the optimizers of several files, is just as
    wrong.

Why it matters
    ``load_state_dict`` silently accepts it. The first step divides by its square root and turns the parameter into NaN,
    whatever the weights in the file are.

Symptoms
    A loss of NaN from the first step after resuming on.

Detection
    ``check --deep`` reads every value of the optimizer's tensors, and the plain numbers called ``step``. Only
    impossible values are reported: NaN and infinities anywhere, and negative numbers in second moments and step
    counters.

Repair
    ``ckptdoctor fix FILE --drop optimizer/state/3`` leaves out the states of these parameters, which the optimizer
    creates again at its next step; the others, and all options, stay. The finding gives the command. If the weights
    have NaN as well, that does not help: go back to the previous checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Node, Part, Role, StateDict, show_path
from ckptdoctor.checkpoint import Mapping as Dict
from ckptdoctor.checkpoint.tree import mapping_at
from ckptdoctor.edits import Fix
from ckptdoctor.facts.optimizers import as_number
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.optimizer.saved_states import forget_states
from ckptdoctor.values.statistics import Values, not_finite

# means of squares and sums of them, as torch, transformers and bitsandbytes call them
_SQUARES = frozenset({"exp_avg_sq", "max_exp_avg_sq", "square_avg", "exp_avg_sq_row", "exp_avg_sq_col", "sum"})
_NEVER_BELOW = _SQUARES | {"row_var", "col_var", "variance", "exp_inf", "step"}
_NAN, _INF = float("nan"), float("inf")


def _saved(**sick: object) -> dict[str, object]:
    whole = {"step": T((), value=3.0), "exp_avg": T((2, 4), value=0.5), "exp_avg_sq": T((2, 4), value=0.25)}
    state = {0: {**whole, **sick}, 1: {**whole, "exp_avg": T((2,), value=-0.5), "exp_avg_sq": T((2,))}}
    net = {"fc.weight": T((2, 4), value=0.5), "fc.bias": T((2,), value=0.5)}
    return {"model": net, "optimizer": {"state": state, "param_groups": [{"lr": 0.1, "params": [0, 1]}]}}


SICK = (
    Example("a NaN among the moments", _saved(exp_avg=T((2, 4), value=_NAN)), deep=True),
    Example("an infinite second moment", _saved(exp_avg_sq=T((2, 4), "bfloat16", value=_INF)), deep=True),
    Example("a negative second moment", _saved(exp_avg_sq=T((2, 4), value=-0.25)), deep=True),
    Example("a counter that is not a number", _saved(step=_NAN), deep=True),
    Example(
        "every state",
        {
            "model": {"fc.weight": T((2, 4), value=0.5), "fc.bias": T((2,), value=0.5)},
            "optimizer_states": [
                {
                    "state": {at: {"momentum_buffer": T((at + 1,), value=_NAN)} for at in range(12)},
                    "param_groups": [{"lr": 0.1, "params": list(range(12))}],
                }
            ],
        },
        deep=True,
    ),
)
HEALTHY = (
    Example("normal moments", _saved(), deep=True),
    Example("a counter that is a plain number", _saved(step=3), deep=True),
    Example("a negative momentum", _saved(momentum_buffer=T((2, 4), value=-3.0)), deep=True),
    Example("weights with NaN are another matter", {"fc.weight": T((2, 4), value=_NAN)}, deep=True),
)


@rule("O756", "optimizer-nan", Severity.ERROR)
def optimizer_nan(values: Values) -> Iterator[Problem]:
    """Report states that make parameters NaN."""
    sick: dict[KeyPath, str] = {tensor.path: "NaN or infinity" for tensor, _ in not_finite(values, Role.OPTIMIZER)}
    for optimizer in values.checkpoint.state_dicts:
        if optimizer.role is Role.OPTIMIZER:
            found = {path: why for path, why in sick.items() if path[: len(optimizer.path)] == optimizer.path}
            found.update({path: why for path, why in _others(values, optimizer) if path not in found})
            if found:
                yield _problem(values.checkpoint, optimizer, found)


def _others(values: Values, optimizer: StateDict) -> Iterator[tuple[KeyPath, str]]:
    """Yield squares and counters below zero, and counters that are plain numbers and none."""
    for tensor in optimizer.tensors:
        read = values.of(tensor)
        if read is not None and tensor.path[-1] in _NEVER_BELOW and read.min < 0:
            yield tensor.path, "a negative number"
    for part, state in _states(values.checkpoint, optimizer).items():
        steps = as_number(dict(state.entries).get("step")) if isinstance(state, Dict) else None
        if steps is not None and not 0 <= steps < _INF:
            yield (*optimizer.path, "state", part, "step"), "a negative number" if steps < 0 else "NaN or infinity"


def _states(checkpoint: Checkpoint, optimizer: StateDict) -> Mapping[Part, Node]:
    node = mapping_at(checkpoint.tree, (*optimizer.path, "state"))
    return dict(node.entries) if node is not None else {}


def _problem(checkpoint: Checkpoint, optimizer: StateDict, found: Mapping[KeyPath, str]) -> Problem:
    first = next(iter(found))
    are = "holds" if len(found) == 1 else "hold"
    what = wording.listed(sorted(set(found.values())))
    return Problem(
        message=f"{wording.plural(len(found), 'value')} of the state of {show_path(optimizer.path)} {are} {what}"
        f"{wording.the_first(show_path(first), len(found))}",
        cause="The first step of resumed training turns every parameter that this state belongs to into NaN.",
        advice="Resume from an earlier checkpoint, or without the states of these parameters.",
        keys=tuple(found),
        location=Location(path=first),
        fix=_fix(checkpoint, optimizer, found),
    )


def _fix(checkpoint: Checkpoint, optimizer: StateDict, found: Mapping[KeyPath, str]) -> Fix | None:
    """Return the fix that leaves out the states of the parameters that are affected."""
    place = (*optimizer.path, "state")
    depth = len(place)
    if not all(path[:depth] == place and len(path) > depth for path in found):
        return None
    return forget_states(checkpoint, optimizer.path, list(dict.fromkeys([path[: depth + 1] for path in found])))
