"""The file names parts of torch's own machinery that are old, or that torch 2.13 does not have.

Meaning
    A pickle names the functions that make its tensors. Files of torch 0.3 and before name ``_rebuild_tensor``, which is
    still there for their sake. Others name functions that were removed since, or added by a later torch.

Why it matters
    Where torch has no such function it cannot load the file at all, although the bytes of the tensors are intact. The
    old function loads everywhere, but other readers often know only today's (``_rebuild_tensor_v2``).

Symptoms
    Unsupported global: GLOBAL torch._utils._rebuild_tensor_v4 was not an allowed global by default.
    Can't get attribute '_rebuild_tensor_v4' on <module 'torch._utils'

Detection
    The names in the pickle are compared with the functions of torch 2.13. The old function alone is only info.

Repair
    Load it with a torch that has the function and save it again. If the file names only the old one, ``ckptdoctor fix
    FILE --select P209`` writes the same tensors as torch does today. Safe: no value changes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.facts.globals import REBUILDERS, BlockedCause, blocked_by
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, Obj, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import blocked as refused
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import CHECK, Message, Way
from ckptdoctor.rules.pickle.repickling import can_be_repickled, repickle_fix
from ckptdoctor.rules.when import unusual_names

_OLD = "torch._utils._rebuild_tensor"
# the functions of torch 2.13 that make a tensor when it is loaded; a file that names another is of another torch
_KNOWN_REBUILDERS = frozenset({*REBUILDERS, "_rebuild_xla_tensor", "_rebuild_from_type", "_rebuild_from_type_v2"})
_INTERNALS = ("torch._utils", "torch._tensor")
# modules of earlier torch that are gone
_GONE = ("torch.tensor", "torch._thnn", "torch.legacy")


def _of_old(data: bytes) -> bytes:
    """Return the file with the function of torch 0.3, which takes the first four of the six arguments."""
    import re

    named = data.replace(b"_rebuild_tensor_v2\n", b"_rebuild_tensor\n")
    return re.sub(rb"\x89ccollections\nOrderedDict\nq.\)Rq.", b"", named, flags=re.DOTALL)


MESSAGES = (
    Message(
        ("Can't get attribute '_rebuild_", "No module named 'torch.nn.backends'"),
        "the file was written by a much older or newer torch, and the functions that build tensors have changed",
        (CHECK, Way("or", "pip install --upgrade torch")),
        also=("P201", "P204"),
    ),
)
SICK = (
    Example(
        "a function of a future torch", {"w": T((3,)), "x": Obj("torch._utils._rebuild_tensor_v9", arguments=(1,))}
    ),
    Example("the function of torch 0.3", {"w": T((3,))}, "torch legacy", damage=_of_old),
)
HEALTHY = (Example("today's functions", {"w": T((3,), parameter=True), "b": T((3,), "bfloat16")}),)


@rule("P209", "old-torch-internal-global", Severity.ERROR, when=unusual_names)
def old_torch_internal_global(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report functions of another torch."""
    unknown = [each for each in blocked_by(checkpoint, BlockedCause.OTHER) if is_unknown_internal(each.path)]
    if unknown:
        module, _, name = unknown[0].path.rpartition(".")
        yield Problem(
            message=f"the file names {refused.classes(unknown)}, which torch 2.13 does not have",
            cause="An earlier or a later torch wrote it, and its objects are made by a part of torch that this one "
            "lacks.",
            torch_says=(*refused.refusal_lines(unknown), f"Can't get attribute '{name}' on <module '{module}'"),
            advice="Load it with the torch that wrote it, and save it there as a state dict of plain tensors.",
            keys=tuple([place.path for each in unknown for place in each.places]),
            location=refused.first_use(unknown),
        )
    old = [tensor for tensor in checkpoint.tensors if tensor.rebuild == _OLD]
    if old:
        first = next((each for each in checkpoint.globals if each.full == _OLD), None)
        yield Problem(
            message=(
                f"{wording.plural(len(old), 'tensor is', 'tensors are')} written as torch 0.3 and before wrote them"
            ),
            cause="torch still loads them; other readers often know only today's function (_rebuild_tensor_v2).",
            advice="Saving it with today's torch does the same.",
            location=Location(member=first.member or None, offset=first.offset) if first is not None else Location(),
            severity=Severity.INFO,
            fix=repickle_fix(checkpoint, "write the tensors as torch does today", "P209")
            if can_be_repickled(checkpoint)
            else None,
        )


def is_unknown_internal(path: str) -> bool:
    """Return whether this is a part of torch's own machinery that torch 2.13 does not have: gone, or not yet there."""
    module, _, name = path.rpartition(".")
    if module in _INTERNALS:
        return name.startswith("_rebuild_") and name not in _KNOWN_REBUILDERS
    return any(module == gone or module.startswith(f"{gone}.") for gone in _GONE)
