"""Two or more tensors of a state dict share the same memory.

Meaning
    Tied weights, such as an output layer that is the input embedding. A torch checkpoint keeps that: the storage is in
    the file once, and loading it makes tensors that share memory again.

Why it matters
    Nothing is wrong with the checkpoint. But ``safetensors.torch.save_file`` refuses to save it, and a program that
    copies each tensor makes the file larger and the weights independent.

Symptoms
    Some tensors share memory, this will lead to duplicate memory on disk and potential differences when loading them
    again: [{'embed.weight', 'head.weight'}].

Detection
    Tensors of one state dict that view the same elements of the same storage in the same way. Views that merely overlap
    are A706.

Repair
    None is needed in torch. For safetensors ``ckptdoctor convert FILE OUT.safetensors`` keeps one of the names and
    records the others, as ``safetensors.torch.save_model`` does; ``ckptdoctor fix FILE --clone-shared`` gives each
    tensor bytes of its own, which ``save_file`` accepts. No value changes, but the file grows and the tensors are
    independent afterwards: only this option does it. ``--tie`` undoes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict
from ckptdoctor.checkpoint.sharing import Shared, shared
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.when import has_views

MESSAGES = (
    Message(
        ("Some tensors share memory",),
        "several names stand for the same memory (tied weights); save_file would write it once for each, and refuses",
        (
            Way("save with", 'safetensors.torch.save_model(model, "model.safetensors")'),
            Way("or see which", "ckptdoctor check FILE --select A701"),
        ),
        also=("A706",),
    ),
    Message(
        ("Error while trying to find names to remove to save state dict",),
        "tensors are views of one buffer and none covers all of it, so safetensors cannot choose one to keep",
        (Way("save a copy of each", "tensor.clone()"),),
        also=("A706",),
    ),
    Message(
        ("The weights trying to be saved contained shared tensors",),
        "several names stand for the same memory, and transformers does not recognise them as tied weights",
        (Way("save a copy of each", "model.save_pretrained(path, safe_serialization=False)"),),
        also=("A706",),
    ),
)
SICK = (
    Example("tied weights", {"embed.weight": T((8, 4), storage="e"), "head.weight": T((8, 4), storage="e")}),
    Example(
        "one bias for two heads",
        {"a.weight": T((4, 4)), "a.bias": T((4,), storage="b"), "b.bias": T((4,), storage="b")},
    ),
)
HEALTHY = (
    Example("tensors of their own", {"embed.weight": T((8, 4)), "head.weight": T((8, 4))}),
    Example("neighbours in one storage", {"q": T((4, 4), storage="qk"), "k": T((4, 4), storage="qk", offset=16)}),
)


@rule("A701", "shared-tensors", Severity.INFO, when=has_views)
def shared_tensors(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report tensors that share memory."""
    for state_dict in checkpoint.state_dicts:
        if state_dict.role in (Role.MODEL, Role.EMA):
            groups = [group for group in shared(state_dict.tensors) if group.tied]
            if groups:
                yield _problem(state_dict, groups)


def _problem(state_dict: StateDict, groups: Sequence[Shared]) -> Problem:
    names = sorted({tensor.key for tensor in groups[0].tensors})
    number = sum(len(group.tensors) for group in groups)
    which = f'"{names[0]}" and "{names[1]}"' if number == 2 and len(names) == 2 else wording.plural(number, "tensor")
    return Problem(
        message=f"{which}{wording.of_place(state_dict.path)} are one tensor",
        cause="Tied weights are kept as they are by torch.save. safetensors.torch.save_file refuses them; save_model "
        "keeps one name of each.",
        advice="To give each bytes of its own: ckptdoctor fix FILE --clone-shared",
        torch_says=("Some tensors share memory, this will lead to duplicate memory on disk",),
        keys=tuple([tensor.path for group in groups for tensor in group.tensors]),
        location=Location(path=state_dict.path),
    )
