"""The file is a TorchScript archive: a program with its weights, not a checkpoint.

Meaning
    ``torch.jit.save`` or ``ScriptModule.save`` wrote it. It holds the model's code as well as its parameters.

Why it matters
    ``torch.load`` has rejected it since 2.6, and returned a module instead of a dict before; ``load_state_dict``
    requires a dict. For ``torch.jit.load``, libtorch and Triton it is the right file.

Symptoms
    Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``.
    RecursiveScriptModule object is not subscriptable

Detection
    The archive has a ``constants.pkl``. In a model repository of Triton, whose ``config.pbtxt`` asks for it, it is only
    info.

Repair
    ``ckptdoctor convert FILE model.safetensors`` extracts the weights without running the code. Or, if you trust the
    file: ``torch.jit.load(FILE, map_location="cpu").state_dict()``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Container
from ckptdoctor.findings import Severity
from ckptdoctor.rules.container.not_torchscript import wants_torchscript
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit.converting import convert_command
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.when import unusual_format

FORMAT = "TorchScript archive"


def _archive(data: bytes) -> bytes:
    """Return a stored archive with the records of a script module; nothing in it makes sense beyond its directory."""
    import io
    import zipfile

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as new:
        new.writestr("model/data.pkl", b"\x80\x02}q\x00.")
        new.writestr("model/constants.pkl", b"\x80\x02).")
        new.writestr("model/code/__torch__.py", b"class Net(Module):\n  pass\n")
        new.writestr("model/version", b"3\n")
    return made.getvalue()


MESSAGES = (
    Message(
        ("with TorchScript archives passed to", "looks like a TorchScript archive"),
        "the file is a program that torch.jit.save wrote, not a state dict",
        (Way("load it with", 'torch.jit.load(path, map_location="cpu").state_dict()'),),
    ),
    Message(
        ("ScriptModule' object is not subscriptable", "ScriptModule' object has no attribute"),
        "the file is a program that torch.jit.save wrote: it is a module, not a dict of weights",
        (Way("take its weights with", "module.state_dict()"),),
    ),
    Message(
        # a program names its classes in the module __torch__; torch.load of 1.5 does not tell it from other archives
        ("No module named '__torch__",),
        "the file is a program that torch.jit.save wrote, and an old torch.load takes it for a pickle",
        (Way("load it with", 'torch.jit.load(path, map_location="cpu").state_dict()'),),
    ),
    Message(
        ("Expected state_dict to be dict-like, got <class '",),
        "the file is a program that torch.jit.save wrote, not a state dict: torch.load returns a module",
        (Way("load it with", 'model.load_state_dict(torch.jit.load(path, map_location="cpu").state_dict())'),),
        then=r"torch\.jit\.[\w.]{1,100}ScriptModule'",
    ),
)
SICK = (Example("a script module", {}, damage=_archive),)
HEALTHY = (Example("a state dict", {"w": T((3,))}),)


@rule("C107", "torchscript-archive", Severity.ERROR, when=unusual_format)
def torchscript_archive(container: Container) -> Iterator[Problem]:
    """Report a script module instead of a state dict."""
    if container.format != FORMAT:
        return
    wanted = wants_torchscript(container.path)
    yield Problem(
        message="this is a TorchScript archive (a program with its weights), not a checkpoint",
        cause="torch.jit.save wrote it. torch.load has rejected it since 2.6; torch.jit.load, libtorch and Triton "
        "read it.",
        torch_says=("Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``.",),
        advice="convert extracts the weights without running the code:",
        commands=(convert_command(container.path),),
        severity=Severity.INFO if wanted else Severity.ERROR,
    )
