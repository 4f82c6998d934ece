"""This is a torch.distributed.checkpoint folder, not a file that ``torch.load`` reads.

Meaning
    Every process wrote its part of each tensor into a ``.distcp`` file, and ``.metadata`` records where each part is.
    FSDP, tensor parallelism, accelerate and Lightning save this way.

Why it matters
    The folder is fine for ``torch.distributed.checkpoint.load``, with any number of processes. Other programs expect
    one file.

Symptoms
    IsADirectoryError: [Errno 21] Is a directory

Detection
    The names in the folder.

Repair
    ``ckptdoctor convert FILE model.pt`` makes one file from it, without a process group;
    ``torch.distributed.checkpoint.format_utils.dcp_to_torch_save`` does that with torch.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint, show_path
from ckptdoctor.checkpoint.checkpoint import unread_files
from ckptdoctor.findings import Severity
from ckptdoctor.formats.fresh.torch_zip import unwritable
from ckptdoctor.formats.suffixes import DISTRIBUTED
from ckptdoctor.rules.examples import Example
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.converting import convert_command
from ckptdoctor.rules.messages import AGAIN, Message, Way
from ckptdoctor.rules.when import format_is

_METADATA = b"\x80\x02ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}U\x13state_dict_metadata}sb."
MESSAGES = (
    Message(
        ("No such file or directory:",),
        "the folder has no .metadata, which torch.distributed.checkpoint writes last: the save was "
        "interrupted, the path is wrong (a folder above, or below), or another program wrote it. Without it "
        "no command can read the pieces",
        (Way("see what the folder is", "ckptdoctor check FILE"),),
        then=r"['\"][^'\"]{0,500}?\.metadata['\"]",
    ),
    Message(
        ("No such file or directory:",),
        "the folder of torch.distributed.checkpoint lacks {file}, with the part of the tensors that one process wrote: "
        "the copy or the save is not complete",
        (Way("see what is missing", "ckptdoctor check FILE"), AGAIN),
        then=r"['\"](?:[^'\"]{0,500}?[/\\])?(?P<file>__\d{1,6}_\d{1,6}\.distcp)['\"]",
    ),
    Message(
        ("Is a directory:",),
        "the path is a directory, as torch.distributed.checkpoint writes them; torch.load expects one file",
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
SICK = (Example("a distributed checkpoint", files={".metadata": _METADATA, "__0_0.distcp": b""}),)
HEALTHY = (Example("one file", {"w": [1, 2]}),)


@rule("X809", "dcp-dir", Severity.INFO, when=format_is(DISTRIBUTED))
def dcp_dir(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report a distributed checkpoint, with the command that makes one file from it where nothing is in its way."""
    if checkpoint.format != DISTRIBUTED:
        return
    advice = "convert makes one file from it:"
    commands: tuple[str, ...] = (convert_command(checkpoint.path, ".pt"),)
    path, reason = next(unwritable(checkpoint.tree), (None, ""))
    if path is not None and not unread_files(checkpoint):  # of files that are missing another rule speaks
        advice, commands = f"One file cannot hold all of it: {show_path(path)} {reason}.", ()
    yield Problem(
        message="this is a torch.distributed.checkpoint folder",
        cause="torch.distributed.checkpoint.load reads it; torch.load and most other programs expect one file.",
        torch_says=(f"[Errno 21] Is a directory: '{checkpoint.path}'",),
        advice=advice,
        commands=commands,
    )
