"""There is a checkpoint where a TorchScript model is required.

Meaning
    Triton's PyTorch backend and libtorch (``torch::jit::load``) run a script module: a program with its weights. This
    file holds weights only; ``torch.save`` wrote it.

Why it matters
    The server does not start the model, and the message is about a missing file inside the archive.

Symptoms
    PytorchStreamReader failed locating file constants.pkl: file not found

Detection
    The file is ``MODEL/VERSION/model.pt``, and ``MODEL/config.pbtxt`` names the platform ``pytorch_libtorch`` or the
    backend ``pytorch``. Elsewhere the file does not show how it will be used: then give the error to ``ckptdoctor
    explain``.

Repair
    None from the file alone, as it has no program: load it into the model's class, and save
    ``torch.jit.script(model)`` or ``torch.jit.trace(model, example)`` with ``torch.jit.save``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ckptdoctor.checkpoint import Container
from ckptdoctor.facts.siblings import folder_of, read_small
from ckptdoctor.findings import Severity
from ckptdoctor.regex import regex
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.when import file_named

_CONFIG = b'name: "resnet"\nplatform: "pytorch_libtorch"\nmax_batch_size: 8\n'
_CHECKPOINTS = ("torch zip", "torch legacy", "safetensors")
MESSAGES = (
    Message(
        ("failed locating file constants.pkl", "file not found: archive/constants.pkl"),
        "torch.jit.load, Triton or libtorch were given a file that torch.save wrote: it holds weights, but "
        "not a program",
        (
            Way("load it with", "torch.load(path)"),
            Way("or make a program from the model", 'torch.jit.script(model).save("model.ts")'),
        ),
    ),
)
SICK = (Example("a state dict for Triton", {"w": T((3,))}, name="1/model.pt", beside={"config.pbtxt": _CONFIG}),)
HEALTHY = (
    Example("a state dict in a folder of its own", {"w": T((3,))}, name="1/model.pt"),
    Example(
        "a state dict for a backend in Python",
        {"w": T((3,))},
        name="1/model.pt",
        beside={"config.pbtxt": b'backend: "python"\n'},
    ),
)


@rule("C108", "not-torchscript", Severity.ERROR, when=file_named("model.pt"))
def not_torchscript(container: Container) -> Iterator[Problem]:
    """Report a state dict in the place of a script module."""
    if container.format in _CHECKPOINTS and wants_torchscript(container.path):
        yield Problem(
            message="config.pbtxt requires a TorchScript model here, but this is a checkpoint",
            cause="It holds weights but not a program: torch.save wrote it, and Triton needs what torch.jit.save "
            "writes.",
            torch_says=("PytorchStreamReader failed locating file constants.pkl: file not found",),
            advice="Load it into the model's class, make a script module with torch.jit.script, and save it with "
            "torch.jit.save.",
        )


# Triton's server looks for a TorchScript model in a place of its own: ``MODEL/VERSION/model.pt``

_LIBTORCH = regex(r'^\s*(?:platform\s*:\s*"pytorch_libtorch"|backend\s*:\s*"pytorch")', re.MULTILINE)


def wants_torchscript(path: str) -> bool:
    """Return whether the repository's ``config.pbtxt``, one folder up, asks for a script module in this place.

    A ``model.py`` beside it takes a state dict as well (the backend's models in Python).
    """
    name, version = os.path.basename(path), os.path.basename(os.path.dirname(path))
    if name != "model.pt" or not version.isdecimal() or "model.py" in folder_of(path).names:
        return False
    config = os.path.join(os.path.dirname(os.path.dirname(path)), "config.pbtxt")
    return _LIBTORCH.search(read_small(config)) is not None
