"""What a file without a model's weights holds, and where weights should be."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Mapping, Role, StateDict
from ckptdoctor.checkpoint.weights import WEIGHTS
from ckptdoctor.facts.devices import rng_tensors
from ckptdoctor.facts.weight_sets import weight_sets

# keys under which training scripts and frameworks save a model's weights
MODEL_KEYS = frozenset(
    (
        *("state_dict", "model", "model_state", "model_state_dict", "net", "network", "module", "params", "weights"),
        *("params_ema", "ema", "g_ema", "model_ema", "state_dict_ema"),
        *("generator", "discriminator", "backbone", "student", "teacher"),
    )
)

_PROGRAM = "TorchScript archive"


def purpose(checkpoint: Checkpoint) -> str | None:
    """Return what a file without a model's weights holds: the state of an optimizer, a scheduler, or generators."""
    tree = checkpoint.tree
    keys = {part for part, _ in tree.entries} if isinstance(tree, Mapping) else set()
    if {"state", "param_groups"} <= keys and not weight_sets(checkpoint):
        return "the state of an optimizer"
    if "last_epoch" in keys and keys & {"_step_count", "base_lrs", "lr_lambdas"}:
        return "the state of a learning rate scheduler"
    if checkpoint.tensors and len(rng_tensors(checkpoint)) == len(checkpoint.tensors):
        return "the state of random number generators"
    return None


def empty_places(checkpoint: Checkpoint) -> list[KeyPath]:
    """Return where a state dict should be but is empty: the file itself, or what a key like ``state_dict`` holds.

    Only in a file without any model's weights: beside them, ``params`` may well be something else. The weights of a
    program in TorchScript may be its constants (``torch.jit.freeze``), and a function has none.
    """
    tree = checkpoint.tree
    if not isinstance(tree, Mapping) or any(each.role is Role.MODEL for each in checkpoint.state_dicts):
        return []
    if not tree.entries:
        return [] if checkpoint.tensors or checkpoint.format == _PROGRAM else [()]
    return [
        (part,) for part, node in tree.entries if part in MODEL_KEYS and isinstance(node, Mapping) and not node.entries
    ]


def without_elements(checkpoint: Checkpoint) -> list[StateDict]:
    """Return the weights whose tensors are all there, but none has an element."""
    return [
        each
        for each in checkpoint.state_dicts
        if each.role in WEIGHTS and each.tensors and not any(tensor.numel for tensor in each.tensors)
    ]
