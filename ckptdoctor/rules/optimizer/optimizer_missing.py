"""The file was written during training, but has no optimizer state.

Meaning
    It was stripped for release (as ``strip_optimizer`` does), or saved with ``save_weights_only``, or the optimizer was
    forgotten when its scheduler was saved.

Why it matters
    Training can start from these weights, but not resume: the moments begin at zero. Programs that ask for the
    optimizer fail.

Symptoms
    KeyError: 'optimizer'
    Trying to restore optimizer state but checkpoint contains only the model. This is probably due to
    `ModelCheckpoint.save_weights_only` being set to `True`.

Detection
    A key for the optimizer with nothing in it, the state of a scheduler or a scaler, or a version of Lightning,
    together with weights, and no optimizer state anywhere. Weights with an epoch and the like are left alone, and so
    are files of DeepSpeed and Megatron, which keep it elsewhere. Info only.

Repair
    None: the state is not in this file.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, Mapping, Role
from ckptdoctor.checkpoint import Sequence as Items
from ckptdoctor.checkpoint.checkpoint import unread_files
from ckptdoctor.facts.optimizers import LIGHTNING, scalers, top
from ckptdoctor.facts.weight_sets import weight_sets
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.when import any_of, keys_mention, more_than_weights

_TRAINER = (
    "Trying to restore optimizer state but checkpoint contains only the model. This is probably due to "
    "`ModelCheckpoint.save_weights_only` being set to `True`."
)
_NET: dict[str, object] = {"fc.weight": T((2, 4)), "fc.bias": T((2,))}
_STATE = {"state": {0: {"momentum_buffer": T((2, 4))}}, "param_groups": [{"lr": 0.1, "params": [0, 1]}]}
_SCHEDULER = {"base_lrs": [0.1], "last_epoch": 3, "_step_count": 4, "_last_lr": [0.01]}
MESSAGES = (
    Message(
        ("KeyError: 'optimizer'", "KeyError: 'optimizer_states'", "KeyError: 'optimizer_state_dict'"),
        "the checkpoint holds no optimizer state: released weights often have none. Training can start from "
        "it, but not resume",
        (Way("see what it holds", "ckptdoctor show FILE"),),
    ),
    Message(
        (
            "Trying to restore optimizer state but checkpoint contains only the model",
            "Trying to restore learning rate scheduler state but checkpoint contains only the model",
            "Trying to restore training state but checkpoint contains only the model",
        ),
        "the checkpoint was saved without the state of training (save_weights_only=True): training can start "
        "from it, but not resume",
        (
            Way("start from its weights", "model = MODEL.load_from_checkpoint(path)"),
            Way("see what it holds", "ckptdoctor show FILE"),
        ),
        also=("O761",),
    ),
    Message(
        ("param 'initial_lr' is not specified in param_groups[",),
        "a scheduler was made to resume (last_epoch), but the optimizer's state was not restored",
        (Way("load the optimizer first, then make the scheduler", "optimizer.load_state_dict(state)"),),
        also=("O758",),
    ),
)
SICK = (
    Example("a stripped checkpoint", {"epoch": -1, "model": _NET, "optimizer": None}),
    Example("a scheduler without its optimizer", {"epoch": 3, "model": _NET, "scheduler": _SCHEDULER}),
    Example(
        "weights only, from Lightning",
        {"epoch": 2, "global_step": 100, "pytorch-lightning_version": "2.4.0", "state_dict": _NET},
    ),
)
HEALTHY = (
    Example("a training checkpoint", {"epoch": 3, "model": _NET, "optimizer": _STATE}),
    Example("weights", {"state_dict": _NET}),
    Example("weights and an epoch", {"epoch": 90, "state_dict": _NET, "best_acc1": 76.1}),
    Example("a DeepSpeed file", {"module": _NET, "optimizer": None, "ds_version": "0.14", "global_steps": 10}),
    Example("an optimizer's file", _STATE),
)


@rule(
    "O754",
    "optimizer-missing",
    Severity.INFO,
    when=any_of(more_than_weights, keys_mention("pytorch-lightning_version")),
)
def optimizer_missing(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report checkpoints of a training without an optimizer."""
    entries = top(checkpoint)
    if not entries or any(each.role is Role.OPTIMIZER for each in checkpoint.state_dicts):
        return
    if unread_files(checkpoint):  # it may be in one of those
        return
    words = _evidence(checkpoint)
    if words is None or kept_elsewhere(checkpoint) or not weight_sets(checkpoint):
        return
    says = _TRAINER if LIGHTNING in entries else "KeyError: 'optimizer'"
    yield Problem(
        message=words,
        cause="Training can start from these weights, but not resume: the optimizer's moments are not here.",
        torch_says=() if next(without_state(checkpoint), None) else (says,),
        advice="Load only the weights, and start with a new optimizer.",
    )


def _evidence(checkpoint: Checkpoint) -> str | None:
    """Return what shows that there could have been an optimizer, or None where nothing does."""
    empty = next(without_state(checkpoint), None)
    if empty is not None:
        return f'"{empty}" is empty'
    if LIGHTNING in top(checkpoint):
        return "a Lightning checkpoint without optimizer state"
    if any(each.role is Role.SCHEDULER for each in checkpoint.state_dicts):
        return "the state of a scheduler is here, but not that of an optimizer"
    if next(scalers(checkpoint), None) is not None:
        return "the state of a gradient scaler is here, but not that of an optimizer"
    return None


# what DeepSpeed and Megatron call things in files whose optimizer lies in others
_ELSEWHERE = frozenset({"ds_config", "ds_version", "dp_world_size", "checkpoint_version", "tp_world_size"})

_OPTIMIZERS = frozenset(
    {"optimizer", "optimizers", "optim", "opt", "optimizer_state", "optimizer_states", "optimizer_state_dict"}
)


def kept_elsewhere(checkpoint: Checkpoint) -> bool:
    """Return whether the program that wrote the file keeps its optimizers in other files."""
    return not _ELSEWHERE.isdisjoint(top(checkpoint))


def without_state(checkpoint: Checkpoint) -> Iterator[str]:
    """Yield keys at the top of the file that are called after an optimizer, and have nothing."""
    for name, node in top(checkpoint).items():
        empty = node is None or (isinstance(node, (Mapping, Items)) and not _length(node))
        if empty and name.lower() in _OPTIMIZERS:
            yield name


def _length(node: Mapping | Items) -> int:
    return len(node.entries) if isinstance(node, Mapping) else len(node.items)
