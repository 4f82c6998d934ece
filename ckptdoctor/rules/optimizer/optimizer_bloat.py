"""Most of the file is the state of the optimizer.

Meaning
    A training checkpoint holds the optimizer state as well as the weights: with Adam twice their size.

Why it matters
    It is needed only to resume training. If the file is published, or kept for evaluation, it is two to four times as
    large as necessary.

Symptoms
    A file of many times the size of the model.

Detection
    The bytes of the optimizers' tensors are compared with those of all tensors. It is reported if they are half or
    more, and 8 MB or more. Info only.

Repair
    None is proposed, since resuming needs it. ``ckptdoctor fix FILE --slim`` leaves out optimizers, schedulers, scalers
    and states of random number generators, and keeps the weights, averaged ones, and plain settings.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Role
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import has

_MUCH = 8_000_000  # bytes that are worth a word


def _adam(side: int) -> dict[str, object]:
    moments = {"step": T(()), "exp_avg": T((side, side)), "exp_avg_sq": T((side, side))}
    groups = [{"lr": 0.1, "params": [0]}]
    return {"model": {"fc.weight": T((side, side))}, "optimizer": {"state": {0: moments}, "param_groups": groups}}


SICK = (Example("the moments of Adam", _adam(1024)),)
HEALTHY = (
    Example("a small one", _adam(8)),
    Example("weights alone", {"model": {"fc.weight": T((1024, 1024))}}),
    Example("an optimizer's file", _adam(8)["optimizer"]),
)


@rule("O755", "optimizer-bloat", Severity.INFO, when=has(Role.OPTIMIZER))
def optimizer_bloat(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report checkpoints that are mostly optimizer."""
    paths = tuple([each.path for each in checkpoint.state_dicts if each.role is Role.OPTIMIZER])
    if not paths or not any(each.role in WEIGHTS for each in checkpoint.state_dicts):
        return
    kept = bytes_of_roles(checkpoint, Role.OPTIMIZER)
    total = sum([each.nbytes for each in checkpoint.storages])
    if kept >= _MUCH and 2 * kept >= total:
        yield Problem(
            message=f"{wording.proportion(kept, total)} of the file is the state of the optimizer: "
            f"{wording.size_words(kept)} of "
            f"{wording.size_words(total)}",
            cause="It is needed only to resume training.",
            advice="To publish it: ckptdoctor fix FILE --slim keeps the weights, averaged ones among them.",
            keys=paths,
        )


def bytes_of_roles(checkpoint: Checkpoint, *roles: Role) -> int:
    """Return the bytes of the storages that the state dicts of these roles use, each storage once."""
    found: dict[str, int] = {}
    for state_dict in checkpoint.state_dicts:
        if state_dict.role in roles:
            for tensor in state_dict.tensors:
                for each in (tensor, *tensor.parts):
                    if each.storage is not None:
                        found[each.storage.key] = each.storage.nbytes
    return sum(found.values())
