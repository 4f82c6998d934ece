"""Describes what was asked of a graft."""

from __future__ import annotations

import os

from ckptdoctor.errors import UsageError
from ckptdoctor.noun import noun


@noun
class GraftRequest:
    """A damaged file, and the copy to take tensors from; None where only flipped bits are to be flipped back.

    ``output`` None means next to it, ``name.grafted.ext``; a folder takes a file of its name. ``keys`` are patterns of
    what to take; none: what is damaged. ``root`` and ``from_root`` are the parts of both that belong together, where
    that is not obvious. ``unsafe`` consents to a mixture of two saves; ``dry`` writes nothing.
    """

    path: str
    donor: str | None = None
    output: str | None = None
    keys: tuple[str, ...] = ()
    root: str | None = None
    from_root: str | None = None
    unsafe: bool = False
    force: bool = False
    dry: bool = False

    def __post_init__(self) -> None:
        if self.from_root is not None and self.root is None:
            raise UsageError("--from-root needs the part that it replaces: name that part with --root.")
        if self.donor is None:
            named = "--key" if self.keys else "--from-root" if self.from_root is not None else ""
            if named:
                raise UsageError(f"{named} is about the other copy: name that with --from.")
            return
        same = os.path.realpath(self.path) == os.path.realpath(self.donor)
        if same and (self.from_root is None or self.root == self.from_root):
            raise UsageError(
                "Both are the same file. To replace one part of it with another, name both: --root model "
                "--from-root model_ema"
            )


def output_of(request: GraftRequest, inside: str | None) -> str:
    """Return where the output goes. ``inside`` is what a packed file is called without that."""
    path = inside or request.path
    if request.output is not None:
        folder = os.path.isdir(request.output)
        return os.path.join(request.output, os.path.basename(path)) if folder else request.output
    stem, suffix = os.path.splitext(path)
    return f"{stem}.grafted{suffix}"
