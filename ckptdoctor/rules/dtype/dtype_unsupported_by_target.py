"""The file has dtypes that safetensors, or an older version of it, does not know.

Meaning
    safetensors has no name for complex128, quantised and a few other dtypes of torch; and float8_e8m0, float4, float6
    and complex64 were added only recently.

Why it matters
    In a torch file: it cannot be saved as, or converted to, safetensors. In a safetensors file: an older version of the
    library rejects the whole file, and torch has no dtype for some of them.

Symptoms
    KeyError: torch.complex128
    unknown variant `F8_E8M0`, expected one of `BOOL`, `U8`, …

Detection
    The dtype of each tensor of a model. Info only: torch, and a current safetensors, read the file.

Repair
    None: cast them (``tensor.to(torch.complex64)``) before saving as safetensors; update the library that rejects the
    file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ckptdoctor.checkpoint import Checkpoint, Tensor
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.messages import Message, Way
from ckptdoctor.rules.when import rare_dtypes

_LATE = frozenset({"F8_E8M0", "F4", "F6_E2M3", "F6_E3M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})
MESSAGES = (
    Message(
        ("InvalidHeaderDeserialization", "invalid JSON in header"),
        "the file holds {dtype} tensors, a dtype that this version of safetensors does not know",
        (Way("upgrade it", "pip install --upgrade safetensors"),),
        then=r".{0,200}?unknownvariant`(?P<dtype>[A-Z][\w]{1,20})`,expectedoneof",
    ),
    Message(
        ("unknown variant",),
        "the file holds {dtype} tensors, a dtype that this version of safetensors does not know",
        (Way("upgrade it", "pip install --upgrade safetensors"),),
        then=r"`(?P<dtype>[A-Z][\w]{1,20})`,expectedoneof",
    ),
)
SICK = (
    Example("complex128 in a torch file", {"fc.weight": T((4, 4)), "phase": T((4,), "complex128")}),
    Example(
        "scales of MXFP4", {"fc.weight": T((4, 4)), "fc.s": T((4,), "float8_e8m0fnu")}, "safetensors", ".safetensors"
    ),
)
HEALTHY = (
    Example("complex64 in a torch file", {"fc.weight": T((4, 4)), "phase": T((4,), "complex64")}),
    Example("float8", {"fc.weight": T((4, 4), "float8_e4m3fn"), "fc.scale": T(())}, "safetensors", ".safetensors"),
)


@rule("T559", "dtype-unsupported-by-target", Severity.INFO, when=rare_dtypes)
def dtype_unsupported_by_target(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report dtypes that safetensors does not take, or did not take for long."""
    late = checkpoint.format.startswith("safetensors")
    for state_dict in weights_among(checkpoint.state_dicts):
        found = [each for each in state_dict.tensors if _is_late(each) is late and (late or _is_unknown(each))]
        if found:
            yield _late(found) if late else _unknown(found)


def _is_late(tensor: Tensor) -> bool:
    return tensor.dtype.safetensors in _LATE


def _is_unknown(tensor: Tensor) -> bool:
    return tensor.dtype.safetensors is None and tensor.dtype.name != "float4_e2m1fn_x2"  # that is F4 in safetensors


def _late(found: Sequence[Tensor]) -> Problem:
    codes = sorted({each.dtype.safetensors or "" for each in found})
    return Problem(
        message=f"{_counted(found)} {wording.listed(codes)}, which older versions of safetensors do not know",
        cause="They reject the whole file, not only these tensors.",
        torch_says=(f"unknown variant `{codes[0]}`, expected one of `BOOL`, `U8`",),
        advice="If it is rejected: pip install --upgrade safetensors",
        keys=tuple([each.path for each in found]),
        location=Location(path=found[0].path[:-1]),
    )


def _unknown(found: Sequence[Tensor]) -> Problem:
    names = sorted({each.dtype.name for each in found})
    return Problem(
        message=f"{_counted(found)} {wording.listed(names)}, which safetensors does not support",
        cause="torch saves and loads them; safetensors has no name for them.",
        torch_says=(f"KeyError: torch.{names[0]}",),
        advice="Cast them before saving as safetensors, or leave them out with --drop.",
        keys=tuple([each.path for each in found]),
        location=Location(path=found[0].path[:-1]),
    )


def _counted(found: Sequence[Tensor]) -> str:
    place = wording.of_place(found[0].path[:-1])
    return f'"{found[0].key}"{place} is' if len(found) == 1 else f"{wording.plural(len(found), 'tensor')}{place} are"
