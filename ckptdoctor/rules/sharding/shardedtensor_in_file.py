"""The file holds ShardedTensors; each process has a part of them.

Meaning
    The sharded state dict of FSDP's first version, or of torchrec, was saved by each process with ``torch.save``.

Why it matters
    It is read only by as many processes as wrote it, each its own file, after they have formed a process group.

Symptoms
    Need to initialize default process group using "init_process_group" before loading ShardedTensor

Detection
    The pickle names the class.

Repair
    None here: the parts are in the files of all processes. Load it as it was saved and save it with
    ``torch.distributed.checkpoint``, or gather it with ``full_state_dict=True``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.sharded_samples import wrapped_tensor
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.when import composed_tensors

_SAYS = 'Need to initialize default process group using "init_process_group" before loading ShardedTensor'
_CLASS = ("torch.distributed._shard.sharded_tensor.api", "ShardedTensor")
MESSAGES = (
    Message(
        ("before loading ShardedTensor",),
        "the file holds ShardedTensors, and each rank has a part (FSDP, torchrec): all ranks read it together",
        (
            Way("in each rank, before loading", "torch.distributed.init_process_group(...)"),
            Way("or save full tensors with", "torch.distributed.checkpoint.state_dict.get_model_state_dict(...)"),
        ),
    ),
)
SICK = (Example("one rank's part", raw=partial(wrapped_tensor, *_CLASS)),)
HEALTHY = (Example("plain tensors", {"w": T((2, 2))}),)


@rule("X811", "shardedtensor-in-file", Severity.ERROR, when=composed_tensors)
def shardedtensor_in_file(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report tensors of which each process has a part."""
    found = sharded_tensors(checkpoint)
    if found:
        are = "is a ShardedTensor" if len(found) == 1 else "are ShardedTensors"
        yield Problem(
            message=f"{wording.plural(len(found), 'tensor')} {are}, with only this process's part here",
            cause="FSDP's first version or torchrec saved it; the other parts are in the files of the other processes.",
            torch_says=(_SAYS,),
            advice="Load it with as many processes as wrote it, and save it with torch.distributed.checkpoint.",
            keys=tuple([tensor.path for tensor in found]),
        )


_SHARDED_TENSORS = "torch.distributed._shard.sharded_tensor"


def sharded_tensors(checkpoint: Checkpoint) -> tuple[Tensor, ...]:
    """Return the ShardedTensors of a file."""
    return tuple([each for each in checkpoint.tensors if (each.subclass or "").startswith(_SHARDED_TENSORS)])
