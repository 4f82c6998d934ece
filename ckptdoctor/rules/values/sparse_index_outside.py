"""A sparse tensor has indices out of bounds.

Meaning
    A sparse tensor is a list of values and their indices. Here an index is outside of the tensor, or the row pointers
    are inconsistent: bytes were damaged, the file was edited, or was made to mislead.

Why it matters
    ``torch.load`` does not check them: the tensor loads, and the first operation on it reads or writes memory that is
    not its own, which ends in a crash or in wrong numbers.

Symptoms
    Nothing when it loads. With ``torch.sparse.check_sparse_tensor_invariants`` on: size is inconsistent with indices:
    for dim 0, size is 2 but found index 2

Detection
    ``check --deep`` reads the indices of every sparse tensor and compares them with its shape.

Repair
    None: use another copy of the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import show_path
from ckptdoctor.findings import Location, Severity
from ckptdoctor.rules.examples import Example, Obj, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.values.statistics import Values

_COO = Obj("torch.serialization._get_layout", arguments=("torch.sparse_coo",))


def _sparse(size: int) -> Obj:
    """Return three values at the places 0, 1 and 2."""
    data = (T((1, 3), "int64"), T((3,), value=0.5), (size,), False)
    return Obj("torch._utils._rebuild_sparse_tensor", arguments=(_COO, data))


SICK = (Example("an index past the end", {"w": _sparse(2), "b": T((2,), value=0.5)}, deep=True),)
HEALTHY = (Example("indices inside", {"w": _sparse(3), "b": T((2,), value=0.5)}, deep=True),)


@rule("V659", "sparse-index-outside", Severity.ERROR)
def sparse_index_outside(values: Values) -> Iterator[Problem]:
    """Report sparse tensors whose indices do not fit their shape."""
    if values.stray:
        first = values.stray[0]
        more = wording.beyond(len(values.stray) - 1, "tensor", before=", and ", after=" like it")
        yield Problem(
            message=f"{show_path(first.path)} is not a valid sparse tensor: {first.reason}{more}",
            cause="torch loads it without checking, and then reads or writes memory outside of it.",
            advice="Use another copy of the file, not this one.",
            keys=tuple([each.path for each in values.stray]),
            location=Location(path=first.path),
        )
