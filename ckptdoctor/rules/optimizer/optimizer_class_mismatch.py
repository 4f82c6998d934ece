"""An optimizer's state and its options belong to different optimizers.

Meaning
    The state was made by SGD and the options are Adam's, or the reverse: the two were put together by hand, or an
    option such as ``amsgrad`` was switched on in the file.

Why it matters
    ``load_state_dict`` silently accepts it. The first step fails, or begins with fresh moments.

Symptoms
    KeyError: 'step'
    KeyError: 'exp_avg_sq'
    KeyError: 'max_exp_avg_sq'

Detection
    The options that only torch's Adam or SGD have, and the state names that only they use, are compared group by group.
    Optimizers of other libraries are not judged.

Repair
    ``ckptdoctor fix FILE --drop 'optimizer/state/*' --unsafe-fixes`` leaves out the state of the parameters: the
    optimizer starts fresh with these options. The finding names the command.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Role, show_path
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.optimizer.saved_states import ParamGroup, forget_states, optimizer_states
from ckptdoctor.rules.when import has

_ADAM_KEEPS: dict[str, object] = {"step": T(()), "exp_avg": T((2, 4)), "exp_avg_sq": T((2, 4))}
_SGD_KEEPS: dict[str, object] = {"momentum_buffer": T((2, 4))}
_ADAM: dict[str, object] = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "amsgrad": False, "foreach": None}
_SGD: dict[str, object] = {"lr": 0.1, "momentum": 0.9, "dampening": 0, "nesterov": False, "foreach": None}


def _saved(options: dict[str, object], keeps: dict[str, object]) -> dict[str, object]:
    groups = [{**options, "params": [0]}]
    return {"model": {"fc.weight": T((2, 4))}, "optimizer": {"state": {0: keeps}, "param_groups": groups}}


_OTHER_CLASS = "the state belongs to a different optimizer class from the one that loaded it"
_LEAVE_OUT = (Way("use the class that saved it, or", "leave the optimizer's state out"),)
# what the classes of torch.optim (2.13) look up, in the options or in the state of a parameter, at their first step
_LOOKED_UP = (
    *("step", "sum", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "square_avg", "acc_delta", "mu_product"),
    *("momentum_buffer", "eta", "mu", "ax", "prev", "step_size", "alpha", "rho", "etas", "dampening", "lambd"),
)
MESSAGES = (
    Message(
        ("KeyError: 'momentum'", "KeyError: 'betas'", "KeyError: 'amsgrad'", "KeyError: 'nesterov'"),
        _OTHER_CLASS,
        _LEAVE_OUT,
    ),
    Message(
        tuple([f"KeyError: '{name}'" for name in _LOOKED_UP]),
        _OTHER_CLASS,
        _LEAVE_OUT,
        near=("torch/optim/", "torch\\optim\\"),  # anything may have a key of this name
    ),
    Message(
        ("KeyError: 'param_groups'", "KeyError('param_groups')"),
        "the loaded state has no param_groups, so it is not the state of a torch optimizer: the whole checkpoint was "
        "passed, not what it has under a key such as \"optimizer\"; or a model's weights were, or a scheduler's state; "
        "or each rank saved a part of it (DeepSpeed)",
        (Way("see what it holds, and under which key", "ckptdoctor show FILE"),),
        also=("O754", "O758", "X808"),
    ),
)
SICK = (
    Example("Adam with SGD's state", _saved(_ADAM, _SGD_KEEPS)),
    Example("SGD with Adam's state", _saved(_SGD, _ADAM_KEEPS)),
    Example("amsgrad without its maxima", _saved({**_ADAM, "amsgrad": True}, _ADAM_KEEPS)),
)
HEALTHY = (
    Example("Adam", _saved(_ADAM, _ADAM_KEEPS)),
    Example("SGD", _saved(_SGD, _SGD_KEEPS)),
    Example("SGD that has not stepped", _saved(_SGD, {"momentum_buffer": None})),
    Example("amsgrad", _saved({**_ADAM, "amsgrad": True}, {**_ADAM_KEEPS, "max_exp_avg_sq": T((2, 4))})),
    Example("an optimizer of another library", _saved({"lr": 0.1, "betas": (0.9, 0.99)}, _SGD_KEEPS)),
)


@rule("O753", "optimizer-class-mismatch", Severity.WARNING, when=has(Role.OPTIMIZER))
def optimizer_class_mismatch(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report optimizers whose options and states contradict each other."""
    for optimizer in optimizer_states(checkpoint):
        words = next(filter(None, map(_contradiction, optimizer.groups)), None)
        if words is not None:
            says, what = words
            yield Problem(
                message=f"{show_path(optimizer.path)} {what}",
                cause="load_state_dict silently accepts it; "
                + (f"the first step fails with {says}." if says else "the saved moments are not used."),
                torch_says=(says,) if says else (),
                advice="Start with a fresh optimizer, or save the state that belongs to these options.",
                keys=(optimizer.path,),
                location=Location(path=optimizer.path),
                fix=forget_states(checkpoint, optimizer.path),
            )


def _contradiction(group: ParamGroup) -> tuple[str, str] | None:
    """Return the error of the first step ("": there is none), and what is wrong, or None where nothing is."""
    options = group.options
    kept = {part for state in group.states for part, value in state.items() if value is not None}
    if {"betas", "amsgrad", "foreach"} <= options.keys() and "momentum" not in options:
        if kept == {"momentum_buffer"}:
            return "KeyError: 'step'", "has the options of Adam and the momentum of SGD"
        if options["amsgrad"] is True and "exp_avg_sq" in kept and "max_exp_avg_sq" not in kept:
            return "KeyError: 'max_exp_avg_sq'", "has amsgrad switched on, but no maxima of the second moments"
    if {"momentum", "dampening", "nesterov"} <= options.keys() and "betas" not in options and "exp_avg_sq" in kept:
        return "", "has the options of SGD and the moments of Adam"
    return None
