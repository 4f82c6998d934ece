"""A state dict has no tensors, or only tensors without elements: there is nothing to load.

Meaning
    The dict that should hold the weights is empty, or each of its tensors has size 0. Common reasons: a
    ``state_dict()`` that was overridden or hooked twice (PEFT), parameters that ZeRO-3 or FSDP had sharded when the
    model was saved, a plain list of modules instead of a ModuleList.

Why it matters
    With ``strict=False`` it loads silently, and the model keeps its random weights.

Symptoms
    Missing key(s) in state_dict: "conv1.weight", "bn1.weight", …
    size mismatch for fc.weight: copying a param with shape torch.Size([0]) from checkpoint, …
    Or nothing, with strict=False.

Detection
    The file is an empty dict; or it holds no model's weights, and a key like ``state_dict`` or ``model`` holds an empty
    dict; or every tensor of a model's state dict has no element.

Repair
    None: the weights were never written. Look for an earlier checkpoint, or save again from a complete model.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, NoteKind, StateDict, show_path
from ckptdoctor.facts.adapters import is_adapter_file
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, Odict, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.noticed import notes_of
from ckptdoctor.rules.messages import SHOW, Message
from ckptdoctor.rules.structure.without_weights import empty_places, without_elements
from ckptdoctor.rules.when import no_model

MESSAGES = (
    Message(
        ("contains no parameters.",),
        "the file has no weights: the program that saved it collected none (an overridden state_dict(), a "
        "sharding strategy). No command recovers them",
        (SHOW,),
        near=("The state dict in",),
    ),
)
SICK = (
    Example("an empty state dict", Odict({}, {"": {"version": 1}})),
    Example("an empty place for the weights", {"epoch": 3, "state_dict": {}, "lr": 0.1}),
    Example("tensors without elements", {"fc.weight": T((0,)), "fc.bias": T((0,))}),
    Example("metadata only", {}, container="safetensors", suffix=".safetensors", metadata={"format": "pt"}),
)
HEALTHY = (
    Example("weights", {"fc.weight": T((2, 4)), "fc.bias": T((2,))}),
    Example("weights next to an empty dict", {"model": {"fc.weight": T((2, 4))}, "params": {}}),
    Example("one tensor without elements", {"fc.weight": T((2, 4)), "cache": T((0,))}),
)

_CAUSE = "The weights were never written. With strict=False this loads silently and changes nothing."
_ADVICE = (
    "Look for an earlier checkpoint. When saving, gather sharded parameters first (ZeRO-3, FSDP), and look for a "
    "state_dict() that was overridden (PEFT)."
)


@rule("W310", "empty-state-dict", Severity.ERROR, when=no_model)
def empty_state_dict(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report state dicts with nothing to load; of empty adapters L903 speaks, of files that cannot be read X801."""
    if is_adapter_file(checkpoint.path):
        return
    unread = notes_of(checkpoint, NoteKind.FILE_MISSING, NoteKind.FILE_DAMAGED)
    for path in () if unread else empty_places(checkpoint):
        where = f"{show_path(path)} is" if path else "the file holds"
        yield Problem(
            message=f"{where} an empty dict",
            cause=_CAUSE,
            advice=_ADVICE,
            keys=(path,) if path else (),
            location=Location(path=path),
        )
    for state_dict in without_elements(checkpoint):
        yield _hollow(state_dict)


def _hollow(state_dict: StateDict) -> Problem:
    number = len(state_dict.tensors)
    verb = "has" if number == 1 else "have"
    return Problem(
        message=f"{wording.all_of(number, 'tensor')}{wording.of_place(state_dict.path)} {verb} no elements",
        cause=_CAUSE,
        advice=_ADVICE,
        keys=tuple([tensor.path for tensor in state_dict.tensors]),
        location=Location(path=state_dict.path),
    )
