"""Tensors have a shape and no values: they were on the meta device when they were saved.

Meaning
    The model was made with ``init_empty_weights``, ``torch.device("meta")`` or a map of devices that keeps parts of it
    on disk, and was saved before its weights were loaded, or without those that were offloaded.

Why it matters
    ``torch.load`` silently returns them. There are no values to recover: they were never in the file.

Symptoms
    Cannot copy out of meta tensor; no data!
    Or, with ``assign=True``, nothing until the first forward pass.

Detection
    The pickle makes the tensors on the device ``meta``, which has no storages.

Repair
    None: the values are not in the file. Load the model without offloading, and save it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.findings import Severity
from ckptdoctor.rules.device import tags
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import COPIED, COPYING, Message, Way
from ckptdoctor.rules.when import tags_beyond_cpu

MESSAGES = (
    Message(
        ("Cannot copy out of meta tensor; no data!",),
        "the model or the file holds tensors without data (meta), so there is nothing to copy",
        (
            Way("see whether it is the file", "ckptdoctor check FILE"),
            Way("if it is the model", "model.load_state_dict(weights, assign=True)"),
        ),
    ),
    Message(
        COPYING,
        "{key} has no data (it is on the meta device), in the file or in the model, so there is nothing to copy",
        (
            Way("if it is the model", "model.load_state_dict(weights, assign=True)"),
            Way("see whether it is the file", "ckptdoctor check FILE"),
        ),
        then=COPIED + r".{0,200}?(?:metatensor|isonthemetadevice|'meta')",
        general=1,
    ),
)
SICK = (
    Example("a model that was never filled", {"w": T((4, 3), device="meta"), "b": T((4,), device="meta")}),
    Example("a head that was left on disk", {"body.weight": T((4, 3)), "lm_head.weight": T((9, 4), device="meta")}),
)
HEALTHY = (Example("values", {"w": T((4, 3)), "b": T((4,))}),)


@rule("D606", "meta-tag", Severity.ERROR, when=tags_beyond_cpu)
def meta_tag(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report tensors without values."""
    found = [each for each in checkpoint.tensors if each.device == tags.META]
    if found:
        yield _problem(checkpoint, found)


def _problem(checkpoint: Checkpoint, found: Sequence[Tensor]) -> Problem:
    total = len(checkpoint.tensors)
    which = (
        wording.all_of(total, "tensor")
        if len(found) == total
        else f"{len(found):,} of {wording.plural(total, 'tensor')}"
    )
    named = "" if len(found) == total else f": {wording.abridged([each.key for each in found])}"
    verb = "has" if len(found) == 1 else "have"
    return Problem(
        message=f"{which} {verb} a shape and no values{named}",
        cause="They were on the meta device: the model was saved before its weights were loaded, or while some of them "
        "were kept on disk.",
        torch_says=("Cannot copy out of meta tensor; no data!",),
        advice="The values are not in this file. Load the model without offloading, and save it again.",
        keys=tuple([each.path for each in found]),
    )
