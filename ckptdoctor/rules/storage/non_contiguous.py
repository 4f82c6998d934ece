"""Tensors of the model are not contiguous.

Meaning
    The tensor is a transposed or permuted view, or in the ``channels_last`` format. A torch checkpoint keeps strides.

Why it matters
    Nothing is wrong with the checkpoint. But ``safetensors.torch.save_file`` refuses such tensors.

Symptoms
    You are trying to save a non contiguous tensor: `w` which is not allowed.

Detection
    The strides of each tensor of a model's state dict are compared with those of a contiguous one.

Repair
    ``ckptdoctor fix FILE --select A707 --unsafe-fixes`` puts the elements in order, as ``Tensor.contiguous()`` does. No
    value changes, but the strides do: a ``channels_last`` format is lost, so it must be requested. Tensors that share
    memory with others stay as they are. Expanded ones (stride 0) are A708.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, KeyPath, Role, StateDict, Tensor
from ckptdoctor.checkpoint.sharing import storage_use
from ckptdoctor.checkpoint.tensor import is_contiguous
from ckptdoctor.edits import Fix, MakeContiguous, Safety
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.storage.expanded_tensor import is_expanded
from ckptdoctor.rules.when import unusual_strides

MESSAGES = (
    Message(
        ("You are trying to save a non contiguous tensor",),
        "the tensor {key} is not contiguous (a transpose, a slice, channels_last), which save_file refuses",
        (Way("save a packed copy of it", "tensor.contiguous()"),),
        then=r":`(?P<key>[^`]{1,500})`",
    ),
)
SICK = (
    Example("a transposed weight", {"w": T((4, 3), stride=(1, 4)), "b": T((4,))}),
    Example("channels last", {"conv.weight": T((4, 3, 2, 2), stride=(12, 1, 6, 3)), "conv.bias": T((4,))}),
)
HEALTHY = (
    Example("rows in order", {"w": T((4, 3)), "b": T((4,))}),
    Example("a dimension of one element", {"w": T((4, 1), stride=(1, 7))}),
)


@rule("A707", "non-contiguous", Severity.INFO, when=unusual_strides)
def non_contiguous(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report tensors whose elements are not in C order."""
    affected = {
        id(state_dict): [
            each
            for each in state_dict.tensors
            if each.storage is not None and not _in_order(each) and not (0 in each.stride and is_expanded(each))
        ]
        for state_dict in checkpoint.state_dicts
        if state_dict.role in (Role.MODEL, Role.EMA)
    }
    if not any(affected.values()):
        return
    alone = _alone(checkpoint)
    for state_dict in checkpoint.state_dicts:
        tensors = affected.get(id(state_dict), [])
        curable = [each for each in tensors if each.path in alone]
        rest = [each for each in tensors if each not in curable]
        if curable:
            paths = tuple([each.path for each in curable])
            title = f"put the elements of {wording.plural(len(paths), 'tensor')} in order"
            fix = Fix(title, (MakeContiguous(paths),), Safety.UNSAFE, "--select A707")
            yield _problem(state_dict, curable, fix)
        if rest:
            yield _problem(state_dict, rest, None)


def _in_order(tensor: Tensor) -> bool:
    """Return whether the tensor is contiguous; the common case is decided without making anything."""
    step = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride), strict=True):
        if stride != step and size != 1:
            return is_contiguous(tensor)
        step *= size
    return True


def _alone(checkpoint: Checkpoint) -> set[KeyPath]:
    """Return the paths of the tensors that have a storage to themselves."""
    return {use.tensors[0].path for use in storage_use(checkpoint.tensors) if len(use.tensors) == 1}


def _problem(state_dict: StateDict, tensors: Sequence[Tensor], fix: Fix | None) -> Problem:
    which = f'"{tensors[0].key}"' if len(tensors) == 1 else wording.plural(len(tensors), "tensor")
    return Problem(
        message=f"{which}{wording.of_place(state_dict.path)} {'is' if len(tensors) == 1 else 'are'} not contiguous",
        cause=f"{_why(tensors)} torch keeps that; safetensors.torch.save_file refuses it.",
        torch_says=(f"You are trying to save a non contiguous tensor: `{tensors[0].key}` which is not allowed.",),
        advice="" if fix else "They share memory with others: call .contiguous() on them before saving.",
        keys=tuple([each.path for each in tensors]),
        location=Location(path=state_dict.path),
        fix=fix,
    )


def _why(tensors: Sequence[Tensor]) -> str:
    if all(_channels_last(each) for each in tensors):
        return "They are in the channels_last format." if len(tensors) > 1 else "It is in the channels_last format."
    return "They are" * (len(tensors) > 1) + "It is" * (len(tensors) == 1) + " saved as a view in another order."


def _channels_last(tensor: Tensor) -> bool:
    if len(tensor.shape) != 4:
        return False
    _, channels, height, width = tensor.shape
    return tensor.stride == (channels * height * width, 1, width * channels, channels)
