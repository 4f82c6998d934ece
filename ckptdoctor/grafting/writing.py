"""Writes what a graft came to, and holds it against both files before it gets its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, Source, Tensor
from ckptdoctor.checkpoint.progress import current
from ckptdoctor.edits.grafts import GraftReport
from ckptdoctor.facts.integrity import examine_integrity
from ckptdoctor.grafting.recipe import Healed
from ckptdoctor.prove.reopened import read_back, require_right
from ckptdoctor.prove.same_contents import first_difference
from ckptdoctor.values.diff_bytes import same_bytes
from ckptdoctor.writing import Recipe, publish

Opened = tuple[Checkpoint, Source]


def write(
    recipe: Recipe,
    report: GraftReport,
    mine: Opened,
    its: Opened,
    healed: Sequence[Healed],
    donors: Sequence[tuple[Tensor, Tensor]],
    force: bool,
) -> GraftReport:
    """Write and verify the output. Raises WriteError when it is not what was meant; then nothing has changed.

    ``donors`` are the tensors that were grafted, each with what stands for it.
    """
    assert report.output is not None

    def verify(path: str) -> None:
        with read_back(), formats.opened(path) as (source, container):
            written = formats.read(source, container)
            require_right(_wrong((written, source), mine[0], its, healed, donors))

    publish(recipe, report.output, force=force, verify=verify, identity=mine[1].identity)
    return replace(report, written=True)


def _wrong(
    written: Opened,
    original: Checkpoint,
    its: Opened,
    healed: Sequence[Healed],
    donors: Sequence[tuple[Tensor, Tensor]],
) -> str | None:
    """What of the output is not what it should be; all that was not grafted was compared when it was copied."""
    found = first_difference(original, written[0])
    if found is not None:
        return found
    if {note.kind for note in written[0].notes} - {note.kind for note in original.notes}:
        return "there is something odd about it that is not about the original"
    keys = {each.storage.key for each in healed}
    storages = tuple([storage for storage in written[0].storages if storage.key in keys])
    if any(
        each.computed is not None
        for each in examine_integrity(replace(written[0], storages=storages), written[1]).damage
    ):
        return "a checksum does not fit"
    tensors = {tensor.path: tensor for tensor in written[0].tensors}
    same = same_bytes([(tensors[one.path], other) for one, other in donors], written, its, current())
    return None if all(each is not False for each in same) else "a tensor is not that of the other copy"
