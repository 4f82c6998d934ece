"""Weights are float64.

Meaning
    They came from NumPy, which uses float64 by default, or were computed with
    ``torch.set_default_dtype(torch.float64)``.

Why it matters
    They take twice the space of float32, and a float32 layer does not compute with them. ``load_state_dict`` casts
    them, and no precision is lost that float32 training ever had.

Symptoms
    mat1 and mat2 must have the same dtype, but got Float and Double
    expected m1 and m2 to have the same dtype, but got: float != double
    Or a file of twice the size.

Detection
    Tensors of float64 (or complex128) in a model's state dict, a kilobyte or more of them. Info only: scientific models
    compute in float64 on purpose. With a reference R004 compares the dtypes instead.

Repair
    No automatic one, since it may be intended. ``--dtype float32`` casts the weights and reports what is lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.weights import weights_among
from ckptdoctor.findings import Location, Severity
from ckptdoctor.match.comparison import Comparison
from ckptdoctor.rules.dtype.float_kinds import double_tensors
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import dtype_begins

_LITTLE = 1_000  # bytes that are not worth a word
SICK = (
    Example("weights from NumPy", {"fc.weight": T((16, 16), "float64"), "fc.bias": T((16,), "float64")}),
    Example("one of them", {"model": {"fc.weight": T((4, 4)), "mean": T((200,), "float64")}}),
)
HEALTHY = (
    Example("float32", {"fc.weight": T((4, 4)), "fc.bias": T((4,))}),
    Example("a few numbers", {"fc.weight": T((4, 4)), "scale": T((3,), "float64")}),
    Example("with a reference, R004 reports it", {"w": T((16, 16), "float64")}, like={"w": T((16, 16))}),
)


@rule("T553", "double-precision", Severity.INFO, when=dtype_begins("float64", "complex128"))
def double_precision(subject: Checkpoint | Comparison) -> Iterator[Problem]:
    """Report models with tensors of float64."""
    if isinstance(subject, Comparison):  # R004 compares each dtype
        return
    for state_dict in weights_among(subject.state_dicts):
        found = double_tensors(state_dict)
        if sum([each.nbytes for each in found]) >= _LITTLE:
            total, name = len(state_dict.tensors), found[0].dtype.name
            whole = len(found) == total and total > 1
            which = wording.all_of(total, "tensor") if whole else f"{len(found):,} of {wording.plural(total, 'tensor')}"
            yield Problem(
                message=f"{which}{wording.of_place(state_dict.path)} {'is' if len(found) == 1 else 'are'} {name}, "
                f"{wording.size_words(sum([each.nbytes for each in found]))}",
                cause="float32 takes half of that; load_state_dict casts to the dtype of each parameter.",
                advice="If it came from NumPy by accident, --dtype float32 casts them.",
                keys=tuple([each.path for each in found]),
                location=Location(path=state_dict.path),
            )
