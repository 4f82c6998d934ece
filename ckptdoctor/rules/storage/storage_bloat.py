"""Storages hold more bytes than the tensors on them use.

Meaning
    A slice of a tensor was saved. ``torch.save`` writes the whole storage under a view, so ``big[:10]`` takes as much
    space as ``big``.

Why it matters
    The file is larger than its contents, and it may hold data that you did not mean to share.

Symptoms
    A file of many times the size that its tensors need.

Detection
    Bytes of each storage that no tensor views, from its first to its last element. A warning where they are half of all
    bytes or more, and a megabyte or more; otherwise info.

Repair
    ``ckptdoctor fix FILE --select A705`` writes only the bytes that tensors view. Safe: every value stays, and shared
    memory stays shared.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import Checkpoint
from ckptdoctor.checkpoint.sharing import bloated
from ckptdoctor.edits import Compact, Fix, Safety
from ckptdoctor.findings import Severity
from ckptdoctor.rules.examples import Example, T
from ckptdoctor.rules.framework import Problem, rule
from ckptdoctor.rules.kit import wording
from ckptdoctor.rules.when import has_views

_ARRAY = "numpy.ndarray"
_MUCH = 1_000_000  # bytes that are worth a warning
_LITTLE = 1_000  # bytes that are not worth a word
SICK = (
    Example("ten rows of a thousand", {"w": T((10, 100), storage_size=100_000), "b": T((10,))}),
    Example("a slice of a large tensor", {"w": T((10, 100), offset=5_000, storage_size=500_000)}),
)
HEALTHY = (
    Example("storages as long as their tensors", {"w": T((10, 100)), "b": T((10,))}),
    Example("slices that make up the whole", {"a": T((500,), storage="s"), "b": T((500,), storage="s", offset=500)}),
)


@rule("A705", "storage-bloat", Severity.WARNING, when=has_views)
def storage_bloat(checkpoint: Checkpoint) -> Iterator[Problem]:
    """Report bytes that no tensor views."""
    uses, total = bloated(checkpoint.tensors)
    # the header of an array in an archive of NumPy belongs to its record, but to no tensor
    uses = [use for use in uses if use.storage.extent is not None and use.tensors[0].rebuild != _ARRAY]
    wasted = sum(use.wasted for use in uses)
    if wasted < _LITTLE:
        return
    storages = tuple([use.storage.key for use in uses])
    yield Problem(
        message=(
            f"{_size(wasted)} of {_size(total)} in {wording.plural(len(uses), 'storage')} "
            f"({wording.proportion(wasted, total)} of all) are viewed by no tensor"
        ),
        cause="Slices were saved: torch.save writes the whole storage under a view; clone() would have avoided it.",
        keys=tuple([tensor.path for use in uses for tensor in use.tensors]),
        fix=Fix(f"leave out {_size(wasted)}", (Compact(storages),), Safety.SAFE, "--select A705"),
        severity=Severity.WARNING if wasted >= _MUCH and 2 * wasted >= total else Severity.INFO,
    )


def _size(nbytes: int) -> str:
    """Return bytes in units of a thousand, as disks and downloads are measured."""
    return f"{nbytes / 1_000_000:,.1f} MB" if nbytes >= 100_000 else f"{nbytes / 1_000:,.1f} kB"
