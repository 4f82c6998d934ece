"""Checkpoints of which each process wrote a part."""

from __future__ import annotations

from ckptdoctor.messages.message import Message, Way

MESSAGES = (
    Message(
        "X811",
        ("before loading ShardedTensor",),
        "the file holds ShardedTensors, of which each rank has a part (FSDP, torchrec): it is read by all ranks"
        " together",
        (
            Way("in each rank, before loading", "torch.distributed.init_process_group(...)"),
            Way("or save whole tensors with", "torch.distributed.checkpoint.state_dict.get_model_state_dict(...)"),
        ),
    ),
    Message(
        "X802",
        ("Loading a checkpoint for MP=",),
        "the checkpoint is split into {parts} parts, one for each rank of tensor parallelism, and this run has {ranks}",
        (Way("start as many processes", "torchrun --nproc-per-node {parts} ..."),),
        then=r"(?P<parts>\d{1,9})butworldsizeis(?P<ranks>\d{1,9})",
    ),
    Message(
        "X809",
        ("Is a directory:",),
        "the path is a directory, as torch.distributed.checkpoint writes them; torch.load wants one file",
        (
            Way("see what it is", "ckptdoctor check FILE"),
            Way(
                "if it is a DCP checkpoint",
                "python -m torch.distributed.checkpoint.format_utils dcp_to_torch FILE out.pt",
            ),
        ),
        among=("torch.load", "torch/serialization", "torch\\serialization"),
        also=("C103",),
    ),
)
