"""A tensor repeats its elements without storing them: it was expanded, and a stride is 0.

Meaning
    ``expand`` and broadcasting show one row many times. ``torch.save`` keeps that: the file has the row once.

Why it matters
    Nothing is wrong with the checkpoint, and ``load_state_dict`` copies the values. But torch refuses to write into
    such a tensor in place, ``safetensors.torch.save_file`` refuses to save it, and a copy takes many times the space.

Symptoms
    RuntimeError: unsupported operation: more than one element of the written-to tensor refers to a single memory
    location. Please clone() the tensor before performing the operation.

Detection
    A stride of 0 in a dimension of two or more, in the tensors of a model.

Repair
    ``ckptdoctor fix FILE --select A708 --unsafe-fixes`` writes every element out, as ``Tensor.contiguous()`` does. No
    value changes, but the file grows, by the size that the finding gives. Not offered where that is a gigabyte or more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Role, StateDict, Tensor
from ckptdoctor.edits import Fix, MakeContiguous, Safety
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import unusual_strides

_MOST = 1_000_000_000  # bytes that a repair writes out
SICK = (
    Example("a row shown five times", {"w": T((5, 3), stride=(0, 1)), "b": T((5,))}),
    Example("one number for all", {"model": {"w": T((4, 4), stride=(0, 0)), "b": T((4,))}}),
)
HEALTHY = (
    Example("a dimension of one", {"w": T((1, 4), stride=(0, 1))}),
    Example("plain tensors", {"w": T((5, 3)), "b": T((5,))}),
)


@rule("A708", "expanded-tensor", Severity.INFO, when=unusual_strides)
def expanded_tensor(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report tensors with a stride of 0."""
    for state_dict in checkpoint.state_dicts:
        if state_dict.role in (Role.MODEL, Role.EMA):
            found = [each for each in state_dict.tensors if 0 in each.stride and is_expanded(each)]
            if found:
                yield _problem(state_dict, found)


def is_expanded(tensor: Tensor) -> bool:
    """Return whether a dimension of several shows the same elements again and again."""
    pairs = zip(tensor.shape, tensor.stride, strict=True)
    return tensor.storage is not None and tensor.numel > 0 and any(size > 1 and not step for size, step in pairs)


def _problem(state_dict: StateDict, found: Sequence[Tensor]) -> Problem:
    paths = tuple([each.path for each in found])
    full = sum([each.nbytes for each in found])
    which = f'"{found[0].key}"' if len(found) == 1 else wording.plural(len(found), "tensor")
    title = f"write out the elements of {wording.plural(len(found), 'tensor')}"
    return Problem(
        message=f"{which}{wording.of_place(state_dict.path)} {'is' if len(found) == 1 else 'are'} expanded: "
        f"{wording.size_words(full)} when written out",
        cause="A stride is 0: elements are repeated. torch refuses to write into such a tensor in place.",
        torch_says=(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation.",
        ),
        keys=paths,
        location=Location(path=state_dict.path),
        fix=Fix(title, (MakeContiguous(paths),), Safety.UNSAFE, "--select A708") if full < _MOST else None,
    )
