"""A tensor is described in a way that no tensor can be: it reaches past its storage, or its sizes make no sense.

What it means
    The view of a tensor (offset, shape, strides) leads outside its storage, or has negative or absurd numbers, more
    dimensions than torch knows, or two dtypes on one storage. No version of torch writes that: the file is damaged,
    was edited, or was made to mislead.

Why it matters
    torch refuses most of these when loading; some it accepts and shows bytes that belong to something else.

What you see
    setStorage: sizes [43], strides [1], storage offset 0, and itemsize 4 requiring a storage size of 172 are out of
    bounds for storage of size 168

How it is found
    The first and the last element of every view are computed and compared with the storage.

Repair
    None: take the file from another copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import NoteKind
from ckptdoctor.facts.notes import Noted, notes_of
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.noticed import problems

SICK = (
    Example(
        "a view past its storage",
        {"w": T((42,))},
        "torch legacy",
        damage=lambda data: data.replace(b"K\x2a\x85", b"K\x2b\x85"),
    ),
)
HEALTHY = (Example("a view of a part of its storage", {"w": T((42,), storage_size=100)}, "torch legacy"),)


@rule("F015", "impossible-tensor", Severity.ERROR)
def impossible_tensor(subject: Noted) -> Iterator[Problem]:
    """Views outside their storage, and sizes that make no sense."""
    yield from problems(
        notes_of(subject, NoteKind.TENSOR_OUT_OF_BOUNDS, NoteKind.TENSOR_ODD),
        otherwise="a tensor is described in a way that no tensor can be",
        cause="torch does not write such tensors: the file is damaged, was edited, or was made to mislead.",
        advice="Take the file from another copy.",
    )
