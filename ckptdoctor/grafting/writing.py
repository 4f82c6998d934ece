"""Writes what a graft came to, and holds it against both files before it gets its name."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Source, Tensor
from ckptdoctor.checkpoint.progress import current
from ckptdoctor.edits.applied.wanted import Wanted
from ckptdoctor.edits.grafts import GraftReport
from ckptdoctor.facts.integrity import examine_integrity
from ckptdoctor.prove.output import require_bytes
from ckptdoctor.prove.same_contents import read_back, require_right, require_same
from ckptdoctor.values.diff_bytes import same_bytes
from ckptdoctor.writing import Recipe, publish

Opened = tuple[Checkpoint, Source]
Pairs = Sequence[tuple[Tensor, Tensor]]


def write(
    wanted: Wanted,
    recipe: Recipe,
    report: GraftReport,
    source: Source,
    its: Opened,
    healed: Container[str],
    donors: Pairs,
    force: bool,
) -> GraftReport:
    """Write and verify the output. Raises WriteError when it is not what was meant; then nothing has changed.

    ``healed`` are the keys of the storages that have other bytes, and ``donors`` the tensors that were grafted, each
    with what stands for it.
    """
    assert report.output is not None

    def verify(path: str) -> None:
        with read_back(), formats.opened(path) as (opened, container):
            written = formats.read(opened, container)
            require_same(wanted.contents, written)
            require_bytes(written, wanted, recipe)
            require_right(_wrong((written, opened), wanted.contents, its, healed, donors))

    publish(recipe, report.output, force=force, verify=verify, identity=source.identity)
    return replace(report, written=True)


def _wrong(written: Opened, original: Checkpoint, its: Opened, healed: Container[str], donors: Pairs) -> str | None:
    """What of the output is not what it should be, although every byte is from where it must be."""
    if {note.kind for note in written[0].notes} - {note.kind for note in original.notes}:
        return "there is something odd about it that is not about the original"
    storages = tuple([storage for storage in written[0].storages if storage.key in healed])
    if any(
        each.computed is not None
        for each in examine_integrity(replace(written[0], storages=storages), written[1]).damage
    ):
        return "a checksum does not fit"
    tensors = {tensor.path: tensor for tensor in written[0].tensors}
    same = same_bytes([(tensors[one.path], other) for one, other in donors], written, its, current())
    return None if all(each is not False for each in same) else "a tensor is not that of the other copy"
