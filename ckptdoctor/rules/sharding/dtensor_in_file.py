"""The file holds DTensors: tensors that are spread over the processes that saved them.

Meaning
    The state dict of a model under FSDP2 or tensor parallelism was saved as it is. Each DTensor names a mesh of devices
    and holds the part that this process had.

Why it matters
    torch loads them only if ``torch.distributed.tensor`` was imported, and the result is not a plain tensor: it
    computes on the mesh that it was saved on. If it was split, the rest is in the files of the other processes.

Symptoms
    ``torch.distributed.tensor`` must be imported to load DTensors

Detection
    The pickle names the class. If the local part has the shape of the whole tensor, it is complete: the mesh has one
    process, or the tensor was replicated.

Repair
    ``ckptdoctor fix FILE --select X810`` replaces each with its local part, if all of them are complete; so does
    ``ckptdoctor convert``. Split ones are joined by saving with
    ``torch.distributed.checkpoint.state_dict.get_model_state_dict`` and ``full_state_dict=True``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.edits import Fix, Safety, Unwrap
from ckptdoctor.facts.devices import dtensors, whole_dtensors
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.sharded_samples import wrapped_tensor
from ckptdoctor.rules.messages import COPIED, COPYING, Message, Way
from ckptdoctor.rules.when import composed_tensors

_CLASS = ("torch.distributed.tensor", "DTensor")
_WHOLE = Way(
    "if the model is the sharded one, load full tensors with",
    "torch.distributed.checkpoint.state_dict.set_model_state_dict(model, weights,"
    " options=torch.distributed.checkpoint.state_dict.StateDictOptions(full_state_dict=True))",
)
MESSAGES = (
    Message(
        ("``torch.distributed.tensor`` must be imported to load DTensors", "must be imported to load DTensors"),
        "the file holds DTensors, and each rank has a part of them: FSDP2 or tensor parallelism saved "
        "without gathering",
        (
            Way("see what is in it", "ckptdoctor check FILE"),
            Way("save full tensors with", "torch.distributed.checkpoint.state_dict.get_model_state_dict(...)"),
        ),
        also=("A710",),
    ),
    Message(
        COPYING,
        "{key} is a DTensor, of which each rank has a part (FSDP2, tensor parallelism), either in the file "
        "or in the model, and a plain tensor in the other; their shapes agree",
        (_WHOLE, Way("or see whether the file holds them", "ckptdoctor check FILE")),
        then=COPIED + r".{0,200}?DTensor",
        also=("A710", "X811"),
    ),
)
SICK = (
    Example("saved by the only process", raw=partial(wrapped_tensor, *_CLASS, local=4)),
    Example("half of a tensor", raw=partial(wrapped_tensor, *_CLASS, local=2)),
)
HEALTHY = (Example("plain tensors", {"w": T((2, 2))}),)


@rule("X810", "dtensor-in-file", Severity.ERROR, when=composed_tensors)
def dtensor_in_file(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report tensors that are spread over processes."""
    found = dtensors(checkpoint)
    fix = _unwrapping(checkpoint)
    if found.whole:
        yield _problem(
            found.whole,
            "with all of their elements here",
            "They were saved from one process, or every process had all of each.",
            "" if fix is not None else "Leave the split ones out, or save full tensors.",
            fix,
        )
    if found.partial:
        yield _problem(
            found.partial,
            "with only one process's part here",
            "Each process had a part, and those of the others are not in this file.",
            "Save full tensors with torch.distributed.checkpoint.state_dict.get_model_state_dict(...).",
        )


def _problem(tensors: Sequence[Tensor], what: str, cause: str, advice: str, fix: Fix | None = None) -> Problem:
    are = "is a DTensor" if len(tensors) == 1 else "are DTensors"
    return Problem(
        message=f"{wording.plural(len(tensors), 'tensor')} {are}, {what}",
        cause=cause,
        torch_says=("``torch.distributed.tensor`` must be imported to load DTensors",),
        advice=advice,
        keys=tuple([tensor.path for tensor in tensors]),
        fix=fix,
    )


def _unwrapping(checkpoint: Checkpoint) -> Fix | None:
    """Return the repair: the local part in the place of each."""
    found = whole_dtensors(checkpoint)
    if found is None:
        return None
    title = "replace each DTensor with its local part"
    return Fix(title, (Unwrap(found.classes, found.storages),), Safety.SAFE, "--select X810")
