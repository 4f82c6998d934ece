"""Tensors of a state dict are different views of one buffer, and overlap.

Meaning
    Queries, keys and values that are parts of one matrix that is also in the file, or parameters that are slices of a
    flat buffer, as ZeRO, FSDP and recurrent layers keep them. A torch checkpoint keeps that: the buffer is in the file
    once.

Why it matters
    Nothing is wrong with the checkpoint, and ``load_state_dict`` copies each tensor. But changing one of the loaded
    tensors in place changes the others, and ``safetensors.torch.save_file`` refuses them.

Symptoms
    Some tensors share memory, this will lead to duplicate memory on disk and potential differences when loading them
    again: [{'q', 'qk'}].

Detection
    Tensors of one state dict whose ranges in one storage overlap, and which are not the same view: those are A701.

Repair
    ``ckptdoctor fix FILE --select A706 --unsafe-fixes`` gives each tensor bytes of its own, as ``Tensor.clone()`` does.
    No value changes, but the file grows and the tensors are independent afterwards, so it must be requested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict
from ckptdoctor.checkpoint.sharing import Shared, shared
from ckptdoctor.edits import Fix, MakeContiguous, Safety
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import has_views

SICK = (
    Example(
        "overlapping views of one buffer",
        {"q": T((4, 4), storage="qkv"), "qk": T((8, 4), storage="qkv"), "v": T((4, 4), storage="qkv", offset=32)},
    ),
    Example("a matrix and its transpose", {"w": T((4, 3), storage="w"), "t": T((3, 4), stride=(1, 3), storage="w")}),
)
HEALTHY = (
    Example("tied weights", {"embed.weight": T((8, 4), storage="e"), "head.weight": T((8, 4), storage="e")}),
    Example("neighbours in one storage", {"q": T((4, 4), storage="qk"), "k": T((4, 4), storage="qk", offset=16)}),
)


@rule("A706", "overlapping-views", Severity.INFO, when=has_views)
def overlapping_views(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report tensors that share some of their memory."""
    for state_dict in checkpoint.state_dicts:
        if state_dict.role in (Role.MODEL, Role.EMA):
            groups = [group for group in shared(state_dict.tensors) if not group.tied]
            if groups:
                yield _problem(state_dict, groups)


def _problem(state_dict: StateDict, groups: Sequence[Shared]) -> Problem:
    tensors = [tensor for group in groups for tensor in group.tensors]
    names = sorted({tensor.key for tensor in groups[0].tensors})
    which = (
        f'"{names[0]}" and "{names[1]}"' if len(tensors) == len(names) == 2 else wording.plural(len(tensors), "tensor")
    )
    paths = tuple(dict.fromkeys([tensor.path for tensor in tensors]))
    plain = all(not each.parts and each.layout == "strided" and not each.dtype.bits % 8 for each in tensors)
    title = f"give {wording.plural(len(paths), 'tensor')} bytes of their own"
    return Problem(
        message=f"{which}{wording.of_place(state_dict.path)} overlap in memory",
        cause="They are different views of one buffer: changing one in place changes the others. "
        "safetensors.torch.save_file refuses them.",
        torch_says=("Some tensors share memory, this will lead to duplicate memory on disk",),
        keys=paths,
        location=Location(path=state_dict.path),
        fix=Fix(title, (MakeContiguous(paths),), Safety.UNSAFE, "--select A706") if plain else None,
    )
