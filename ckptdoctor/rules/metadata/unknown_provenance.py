"""A training checkpoint without a record of its progress or its settings.

Meaning
    The file holds the state of an optimizer as well as the weights, so it is meant for resuming. But there is no epoch
    or step, no version of a framework, and no arguments or configuration in it.

Why it matters
    Training resumes at the wrong point: schedules, logs and the data order start again. Later, nobody can find out
    which run the file is from.

Symptoms
    Nothing.

Detection
    At the top of the file there are states (of a model, an optimizer, a scheduler) and nothing else. Files that hold
    only weights are not reported. Info only.

Repair
    None: save ``{"epoch": …, "step": …, "args": vars(args)}`` with the weights, as plain numbers and strings.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Mapping, Role
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.when import has

_MODEL = {"fc.weight": T((2, 2))}
_STATE = {"exp_avg": T((2, 2)), "exp_avg_sq": T((2, 2))}
_OPTIMIZER = {"state": {0: _STATE}, "param_groups": [{"lr": 0.1, "params": [0]}]}
SICK = (Example("weights and an optimizer", {"model": _MODEL, "optimizer": _OPTIMIZER}),)
HEALTHY = (
    Example("weights, an optimizer and an epoch", {"model": _MODEL, "optimizer": _OPTIMIZER, "epoch": 3}),
    Example("weights alone", _MODEL),
)


@rule("M976", "unknown-provenance", Severity.INFO, when=has(Role.OPTIMIZER))
def unknown_provenance(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report a checkpoint to resume from that does not say where it comes from."""
    if not _tells_its_origin(checkpoint):
        yield Problem(
            message="a training checkpoint without epoch, step, version or arguments",
            cause="The optimizer state is here, but nothing records the progress or the settings of the training.",
            advice="Save the epoch, the step and the arguments with the weights, as plain numbers and strings.",
        )


# Whether a training checkpoint says where it comes from: how far the training was, and of what


def _tells_its_origin(checkpoint: Checkpoint) -> bool:
    """Return whether there is more at the top of the file than states, or the file is not to resume from.

    Any other value there tells something of the run: its names are those of the person who wrote the script.
    """
    roles = {each.role for each in checkpoint.state_dicts}
    if Role.OPTIMIZER not in roles or not roles & set(WEIGHTS) or not isinstance(checkpoint.tree, Mapping):
        return True
    if set(checkpoint.metadata or ()) - {"format"} or Role.SCHEDULER in roles:  # a scheduler knows its last epoch
        return True
    paths = [each.path for each in checkpoint.state_dicts]
    inner = {path[0] for path in paths if path}
    return any(part not in inner for part, _ in checkpoint.tree.entries)
