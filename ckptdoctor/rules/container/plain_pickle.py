"""The file was written by ``pickle.dump`` or joblib, not by ``torch.save``.

Meaning
    It is a pickle without torch's header: a dict of NumPy arrays, or any other Python object.

Why it matters
    ``torch.load`` rejects it, and ``pickle.load`` runs any code in the file. Programs that expect a torch checkpoint
    cannot use it as it is.

Symptoms
    Invalid magic number; corrupt file?
    Unsupported operand 149

Detection
    The first bytes are those of a pickle, and what follows is not what torch writes first. Where the file is not named
    for torch (``.pkl``), that is a warning.

Repair
    ``ckptdoctor convert FILE model.safetensors`` converts the arrays in it to tensors without running anything.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator

from ckptdoctor.checkpoint import Container
from ckptdoctor.findings import Severity
from ckptdoctor.noun import replace
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.converting import convert_command
from ckptdoctor.rules.messages import CHECK, Message, first_byte
from ckptdoctor.rules.when import unusual_format

_WRITERS = {
    "pickle": "pickle.dump",
    "joblib pickle": "joblib.dump",
    "scikit-learn pickle": "scikit-learn",
    "Paddle pickle": "paddle.save",
}
# torch.load reads protocol 2 some way into the pickle, and stops at the first opcode of a later one (FRAME)
_FRAME = b"\x95"
# {"epoch": 3} in protocols 4 and 2
_FOUR = b"\x80\x04\x95\x0e\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x05epoch\x94K\x03s."
_TWO = b"\x80\x02}q\x00X\x05\x00\x00\x00epochq\x01K\x03s."
MESSAGES = (
    *[
        replace(message, also=("P211",))
        for message in first_byte(
            0x95,
            "the file is a pickle of protocol 4 or 5: pickle.dump or another library wrote it, or torch.save did with "
            "pickle_protocol=4 or 5, which weights_only=True does not read",
            (CHECK,),
        )
    ],
    Message(
        ("Invalid magic number; corrupt file?",),
        "the file is a pickle, but torch.save did not write it: pickle.dump, joblib or another library did",
        (CHECK,),
        also=("F014", "P204"),
    ),
)
SICK = (
    Example("a pickle named pt", raw=_FOUR),
    Example("a pickle named pkl", raw=_TWO, suffix=".pkl"),
)
HEALTHY = (
    Example("a file from torch.save", {"w": T((3,))}),
    Example("an old file of torch", {"w": T((3,))}, "torch legacy"),
)


@rule("C104", "plain-pickle", Severity.ERROR, when=unusual_format)
def plain_pickle(container: Container) -> Iterator[Problem]:
    """Report a pickle that torch.save did not write."""
    writer = _WRITERS.get(container.format)
    if writer is None:
        return
    named = _is_torch_name(container)
    strict = ("Unsupported operand 149",) if container.head[2:3] == _FRAME else ()
    yield Problem(
        message=f"this is a pickle that {writer} wrote, not torch.save",
        cause="torch.load looks for its own header and rejects the file; pickle.load runs any code in it.",
        torch_says=(*strict, "Invalid magic number; corrupt file?") if writer != "paddle.save" else (),
        advice="convert extracts the arrays without running anything:",
        commands=(convert_command(container.path),),
        severity=Severity.ERROR if named else Severity.WARNING,
    )


_TORCH = frozenset({".pt", ".pth", ".ckpt", ".bin", ".pt2", ".tar"})


def _is_torch_name(container: Container) -> bool:
    """Return whether people, and programs, would open the file with ``torch.load``."""
    return os.path.splitext(container.path)[1].lower() in _TORCH
