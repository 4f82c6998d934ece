"""``--remap-optimizer``: the states of optimizers numbered as the target, or the model beside them, numbers them."""

from __future__ import annotations

from dataclasses import replace

from ckptdoctor.checkpoint import Checkpoint, Role, show_path
from ckptdoctor.checkpoint.expectation import Reference
from ckptdoctor.edits import Edit, Safety
from ckptdoctor.errors import RefusedError
from ckptdoctor.facts.optimizers import saved_optimizers
from ckptdoctor.match.comparing import compare
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.kit.remapping import remap_fix


def in_its_place(reference: Reference, checkpoint: Checkpoint) -> Reference:
    """The reference for weights that stay where they are, beside their optimizer."""
    return replace(reference, root=compare(checkpoint, reference).path)


def remap_edits(checkpoint: Checkpoint, reference: Reference | None, unsafe: bool) -> list[Edit]:
    """The edits for every optimizer of the file. Raises RefusedError where one cannot be brought to the target.

    States are dropped only where ``unsafe`` admits it.
    """
    if not any(each.role is Role.OPTIMIZER for each in checkpoint.state_dicts):
        raise RefusedError("There is no state of an optimizer in this file whose parameters could be numbered anew.")
    edits: list[Edit] = []
    for optimizer in saved_optimizers(checkpoint):
        subject: Checkpoint | Comparison = checkpoint if reference is None else compare(checkpoint, reference)
        fix, reason = remap_fix(subject, optimizer)
        if reason:
            raise RefusedError(f"{show_path(optimizer.path)} cannot be numbered anew: {reason.partition(': ')[2]}")
        if fix is not None and reference is not None and fix.safety is Safety.UNSAFE and not unsafe:
            raise RefusedError(f"--remap-optimizer would {fix.title}, which is a guess or a loss: add --unsafe-fixes.")
        edits += [each for each in fix.edits if each not in edits] if fix is not None else []
    return edits
