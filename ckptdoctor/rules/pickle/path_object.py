"""The file holds ``pathlib`` paths, which load on one operating system only.

Meaning
    A directory or file name was saved as a ``PosixPath`` (Linux, macOS) or a ``WindowsPath`` instead of as text.

Why it matters
    torch has rejected it since 2.6. With ``weights_only=False`` a PosixPath cannot be made on Windows, nor the reverse,
    and a path saved under Python 3.13 names a module that other versions do not have.

Symptoms
    WeightsUnpickler error: Unsupported global: GLOBAL pathlib.PosixPath was not an allowed global by default.
    cannot instantiate 'PosixPath' on your system
    No module named 'pathlib._local'

Detection
    The pickle names a class of ``pathlib``.

Repair
    ``ckptdoctor fix FILE --weights-only-safe`` converts every path to its text. Safe: ``Path(text)`` is the same path.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.globals import Blocked, BlockedCause, blocked_by
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, Obj, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import blocked as refused
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.kit.blocked import Objects, convertible
from ckptdoctor.rules.messages import SAFE, Message
from ckptdoctor.rules.when import unusual_names

_WEIGHTS = {"fc.weight": T((2, 2)), "fc.bias": T((2,))}
MESSAGES = (
    Message(
        ("GLOBAL",),
        "the file holds a path object ({global}) besides the tensors, and torch 2.6 and later load only "
        "tensors and plain values",
        (SAFE,),
        then=r"(?P<global>pathlib\.[\w.]{1,300}?)wasnotanallowedglobal",
        also=("P201",),
        general=1,
    ),
    Message(
        ("cannot instantiate 'PosixPath' on your system", "cannot instantiate 'WindowsPath' on your system"),
        "the file holds a path object of another operating system, which does not exist on this one",
        (SAFE,),
        also=("P201",),
    ),
    Message(
        ("No module named 'pathlib._local'",),
        "the file holds a path object pickled by Python 3.13, where its module has another name",
        (SAFE,),
        also=("P201",),
    ),
)
SICK = (
    Example(
        "a path next to the weights",
        {"model": _WEIGHTS, "resume": Obj("pathlib.PurePosixPath", arguments=("/data", "runs/a.pt"))},
    ),
    Example("a Windows path", {"model": _WEIGHTS, "root": Obj("pathlib.PureWindowsPath", arguments=("C:\\data", "a"))}),
)
HEALTHY = (Example("a path as text", {"model": _WEIGHTS, "resume": "/data/runs/a.pt"}),)


@rule("P203", "path-object", Severity.ERROR, when=unusual_names)
def path_object(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report paths that are objects instead of text."""
    found = blocked_by(checkpoint, BlockedCause.PATH)
    if not found:
        return
    plain, values, rest = convertible(found)
    for objects in (plain, rest):
        if objects.blocked:
            yield _problem(checkpoint, objects, values if objects is plain else [])


def _problem(checkpoint: Checkpoint, objects: Objects, values: list[object]) -> Problem:
    number = len(objects.places)
    what = refused.classes(objects.blocked)
    several = f"{number:,} paths are objects ({what}): {refused.listed_places(objects.places)}"
    title = f"convert {wording.plural(number, 'path')} to text"
    return Problem(
        message=f"{refused.where(objects.places[0])} is a {what}" if number == 1 else several,
        cause="The path was saved as an object of pathlib; str(path) would have avoided it.",
        torch_says=(*refused.refusal_lines(objects.blocked[:1]), *_elsewhere(objects.blocked[0])),
        advice="" if values else refused.trusting(objects.blocked, "If you trust the file: {} before torch.load."),
        keys=tuple([place.path for place in objects.places]),
        location=refused.first_use(objects.blocked),
        fix=refused.plain_fix(checkpoint, objects, values, title, "P203") if values else None,
    )


def _elsewhere(blocked: Blocked) -> tuple[str, ...]:
    """Return what another operating system, or another Python, says with weights_only=False."""
    name = blocked.path.rpartition(".")[2]
    said = [f"cannot instantiate '{name}' on your system"] if name in ("PosixPath", "WindowsPath") else []
    if blocked.path.startswith("pathlib._local."):
        said.append("No module named 'pathlib._local'")
    return tuple(said)
