"""Holds a new index against the shards: the tensors of the folder are what they were, and nothing speaks against it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from ckptdoctor import formats
from ckptdoctor.brief import in_full
from ckptdoctor.checkpoint import Checkpoint, Container, FolderSource, Tensor
from ckptdoctor.diagnose.cures import container_findings
from ckptdoctor.diagnose.findings import findings_of, possible, worst_first
from ckptdoctor.errors import CkptDoctorError, WriteError
from ckptdoctor.facts.sharding import against_index
from ckptdoctor.findings import Finding, Proof
from ckptdoctor.formats.directories.overlay import Overlay
from ckptdoctor.repair.plan import Plan
from ckptdoctor.rules.registry import all_rules


def verify_index(path: str, plan: Plan) -> Proof:
    """Read the folder with the index at ``path``. Raises WriteError, with the tensor, when it is not what it was."""
    assert plan.index is not None
    try:
        with closing(FolderSource(plan.request.path)) as folder:
            names = folder.names
        with closing(Overlay(plan.request.path, {plan.index: path}, names)) as changed:
            container = formats.examine(changed)
            written = formats.read(changed, container)
    except CkptDoctorError as error:
        raise WriteError(f"The new index cannot be read and was thrown away: {error.message}") from error
    before, after = dict(_places(plan.original)), dict(_places(written))
    unlike = next((name for name in (*before, *after) if before.get(name) != after.get(name)), None)
    if unlike is not None:
        raise WriteError(f"With the new index {unlike} would be another tensor; it was thrown away.")
    wrong = against_index(written)
    if wrong is not None:
        raise WriteError(f"The new index is not right either ({wrong}), and was thrown away.")
    count = len(plan.original.storages)
    return Proof(storages=count, identical=count, findings=tuple(worst_first(_findings(container, written))))


def _findings(container: Container, written: Checkpoint) -> Iterator[Finding]:
    for finding in (*container_findings(container, all_rules()), *findings_of(written)):
        yield possible(finding, container)


def _places(checkpoint: Checkpoint) -> Iterator[tuple[str, object]]:
    """What each tensor is, and where its bytes lie."""
    for tensor in checkpoint.tensors:
        yield in_full(tensor.path), _place(tensor)


def _place(tensor: Tensor) -> object:
    where = None if tensor.storage is None else tensor.storage.extent
    return tensor.form, tensor.rebuild, where, tuple([_place(part) for part in tensor.parts])
