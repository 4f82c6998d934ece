"""The optimizer counts its steps in a dtype with too little range.

Meaning
    The whole checkpoint was cast to half precision, the step counters with it. bfloat16 counts to 256 and float16 to
    2,048: adding one to that gives the same number again.

Why it matters
    From there on the counter stops, and Adam's bias correction with it. Counters above those numbers were rounded when
    they were cast.

Symptoms
    Nothing.

Detection
    The dtype of the tensors called ``step`` in an optimizer's state. float32, which torch uses, and integers are
    correct; so are plain numbers, which torch before 1.12 saved.

Repair
    ``ckptdoctor fix FILE --select O757 --unsafe-fixes`` casts the counters to float32, which holds each of these
    numbers exactly. If the true count was rounded away, set it: ``state["step"].fill_(count)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Role, Tensor, show_path
from ckptdoctor.edits import Cast, Fix, Safety
from ckptdoctor.edits.casts import can_be_cast
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.optimizer.saved_states import steps
from ckptdoctor.rules.when import has

_COUNTS_TO = {"bfloat16": 256, "float16": 2048, "float8_e4m3fn": 16, "float8_e5m2": 8}


def _adam(step: object) -> dict[str, object]:
    moments = {"step": step, "exp_avg": T((2, 4)), "exp_avg_sq": T((2, 4))}
    groups = [{"lr": 0.1, "params": [0]}]
    return {"model": {"fc.weight": T((2, 4))}, "optimizer": {"state": {0: moments}, "param_groups": groups}}


MESSAGES = (
    Message(
        ("`capturable=False`, state_steps should not be CUDA tensors", "capturable=False, state_steps should not be"),
        "the optimizer's step counters were moved to the GPU; torch 1.12.0 does so when it loads its own state",
        (Way("upgrade torch", "pip install --upgrade torch"),),
    ),
)
SICK = (
    Example("a bfloat16 counter", _adam(T((), "bfloat16"))),
    Example("a float16 counter", _adam(T((), "float16"))),
)
HEALTHY = (
    Example("float32", _adam(T(()))),
    Example("a torch integer", _adam(T((), "int64"))),
    Example("a number, as torch before 1.12 saved it", _adam(3)),
)


@rule("O757", "optimizer-step-dtype", Severity.WARNING, when=has(Role.OPTIMIZER))
def optimizer_step_dtype(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report step counters of half precision."""
    for optimizer, tensors in steps(checkpoint):
        found = [each for each in tensors if each.dtype.name in _COUNTS_TO]
        if found:
            name = found[0].dtype.name
            which = (
                "the only step counter" if len(tensors) == 1 else f"{len(found):,} of {len(tensors):,} step counters"
            )
            yield Problem(
                message=f"{which} of {show_path(optimizer.path)} {'is' if len(found) == 1 else 'are'} {name}, which "
                f"counts to {_COUNTS_TO[name]:,}",
                cause="From there on adding one changes nothing: the counter stops, and with it Adam's bias "
                "correction.",
                advice="Counters above that number were rounded: set the true count before you continue training.",
                keys=tuple([each.path for each in found]),
                location=Location(path=optimizer.path),
                fix=_fix(found),
            )


def _fix(counters: Sequence[Tensor]) -> Fix | None:
    if not all(map(can_be_cast, counters)):
        return None
    cast = Cast(tuple([each.path for each in counters]), "float32", exact=True)
    title = f"cast {wording.plural(len(counters), 'step counter')} to float32"
    return Fix(title, (cast,), Safety.UNSAFE, "--select O757")
