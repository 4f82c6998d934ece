"""The part of a checkpoint that a filter keeps: tensors, and of the rest only the levels in which they lie."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ckptdoctor import formats
from ckptdoctor.checkpoint import Checkpoint, KeyPath, StateDict
from ckptdoctor.filters.found import Findings
from ckptdoctor.filters.language import Query, parse
from ckptdoctor.filters.table import Table
from ckptdoctor.findings import FileReport, Finding
from ckptdoctor.look.contents import Asked, Part, part_of, viewed
from ckptdoctor.look.pruning import pruned


def read_filtered(path: str, text: str, root: str | None = None) -> Part:
    """What a filter keeps of the file at ``path`` below ``root`` (None: all).

    The file is examined only where the filter asks for findings. Raises what ``formats.open_checkpoint`` does, and
    UsageError for a filter that makes no sense, or when there is no such root.
    """
    query = parse(text)
    report = _examined(path) if query.asks_findings else None
    if report is None or report.checkpoint is None:  # opening it says why it cannot be read
        checkpoint = formats.open_checkpoint(path)
    else:
        checkpoint = report.checkpoint
    found = report.findings if report is not None else ()
    return _sifted(part_of(checkpoint, root), checkpoint, query, text, found)


def filtered(part: Part, checkpoint: Checkpoint, text: str, path: str) -> Part:
    """What a filter keeps of a part of the checkpoint at ``path``; the file is examined as by ``read_filtered``."""
    query = parse(text)
    found = _examined(path).findings if query.asks_findings else ()
    return _sifted(part, checkpoint, query, text, found)


def _examined(path: str) -> FileReport:
    from ckptdoctor.examine.file import check

    return check(path)


def _sifted(part: Part, checkpoint: Checkpoint, query: Query, text: str, found: tuple[Finding, ...]) -> Part:
    """All tensors of the checkpoint are asked, as in the browser: one may be tied to another outside of the part."""
    table = Table(checkpoint.tensors)
    rows = query.rows(table, Findings(table, found))
    return part if rows is None else _only(part, {checkpoint.tensors[row].path for row in rows}, text)


def _only(part: Part, paths: set[KeyPath], text: str) -> Part:
    before = part.checkpoint
    tensors = tuple([each for each in before.tensors if each.path in paths])
    checkpoint = replace(
        before,
        tensors=tensors,
        storages=viewed(before, tensors),
        state_dicts=tuple(_with_tensors(before.state_dicts, paths)),
        metadata=None,
    )
    return Part(checkpoint, part.root, pruned(part.node, paths), Asked(text, len(before.tensors)))


def _with_tensors(state_dicts: Iterable[StateDict], paths: set[KeyPath]) -> Iterable[StateDict]:
    for each in state_dicts:
        tensors = tuple([tensor for tensor in each.tensors if tensor.path in paths])
        if tensors:
            yield replace(each, tensors=tensors, others=(), metadata=None)
