"""Checkpoints of which each process wrote a part."""

from __future__ import annotations

from ckptdoctor.explain.message import Message, Way

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
        "N421",
        ("Missing key in checkpoint state_dict:",),
        "the folder has no {key}: Transformer Engine keeps an _extra_state beside the weights, and the versions that"
        " saved and that loads do not keep the same. It holds scales of FP8, and nothing where FP8 is not used",
        (
            Way(
                "leave as it is what the folder lacks",
                "torch.distributed.checkpoint.load(state, checkpoint_id=path,"
                " planner=torch.distributed.checkpoint.DefaultLoadPlanner(allow_partial_load=True))",
            ),
        ),
        then=r"(?P<key>[\w.]{1,400}?_extra_state)",
    ),
    Message(
        "R001",
        ("Missing key in checkpoint state_dict:",),
        "the folder that torch.distributed.checkpoint wrote lacks a key that the state dict to be filled has: it was"
        " saved under another name, or not at all",
        (
            Way("see what it has", "ckptdoctor show FILE"),
            Way(
                "or leave as it is what the folder lacks",
                "torch.distributed.checkpoint.load(state, checkpoint_id=path,"
                " planner=torch.distributed.checkpoint.DefaultLoadPlanner(allow_partial_load=True))",
            ),
        ),
        also=("N404", "N405", "N407", "O754"),
    ),
    Message(
        "R003",
        ("Size mismatch between saved torch.Size(",),
        "a tensor is {here} in the folder that torch.distributed.checkpoint wrote and {there} in the model",
        (Way("see the shapes", "ckptdoctor show FILE"),),
        then=r"(?P<here>\[[\d,]{0,80}\])\)andcurrent:torch\.Size\((?P<there>\[[\d,]{0,80}\])",
        also=("S501", "S502", "S510"),
    ),
    Message(
        "X809",
        ("No such file or directory:",),
        "the folder has no .metadata, which torch.distributed.checkpoint writes last: the save was broken off, the path"
        " is another (a folder above, or below), or another program wrote it. Without it no command reads the pieces",
        (Way("see what the folder is", "ckptdoctor check FILE"),),
        then=r"['\"][^'\"]{0,500}?\.metadata['\"]",
    ),
    Message(
        "X808",
        ("The checkpoint being loaded used a DP world size of",),
        "DeepSpeed's optimizer state is split into {saved} parts, one for each rank, and this run has {ranks}",
        (
            Way(
                "start as many processes, or load the weights only",
                "engine.load_checkpoint(path, load_optimizer_states=False)",
            ),
            Way("or make whole weights of it", "python zero_to_fp32.py . weights.pt"),
        ),
        then=r"(?P<saved>\d{1,9})butthecurrentworldsizeis(?P<ranks>\d{1,9})",
    ),
    Message(
        "X808",
        (
            "of '*_optim_states.pt' under",
            "can't find model states file at",
            "is not a model state checkpoint",
            "is not a zero checkpoint",
        ),
        "DeepSpeed's folder is not complete: a rank did not save its part, files of two saves are mixed, or the path is"
        " not the folder that holds “latest” and global_step…. No command brings a missing part back",
        (Way("see what is there", "ckptdoctor check FILE"),),
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
