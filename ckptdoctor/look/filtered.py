"""Keeps the part of a checkpoint that a filter asks for: tensors, and of the rest only the levels around them."""

from __future__ import annotations

from collections.abc import Iterable, Set

from ckptdoctor import formats
from ckptdoctor.checkpoint import (
    Checkpoint,
    KeyPath,
    Mapping,
    Node,
    Opaque,
    Part,
    Sequence,
    StateDict,
    Tensor,
    children,
)
from ckptdoctor.filters.found import Findings
from ckptdoctor.filters.language import Query, parse
from ckptdoctor.filters.table import Table
from ckptdoctor.findings import FileReport, Finding
from ckptdoctor.look.contents import Excerpt, FilterAsked, part_of, viewed
from ckptdoctor.noun import replace


def read_filtered(path: str, text: str, root: str | None = None) -> Excerpt:
    """Return the excerpt that a filter keeps of the file at ``path`` below ``root`` (None: all).

    The file is examined only where the filter asks for findings. Raises what ``formats.open_checkpoint`` does, and
    UsageError for a filter that is invalid, or when there is no such root.
    """
    query = parse(text)
    report = _examined(path) if query.asks_findings else None
    if report is None or report.checkpoint is None:  # opening it says why it cannot be read
        checkpoint = formats.open_checkpoint(path)
    else:
        checkpoint = report.checkpoint
    found = report.findings if report is not None else ()
    return _sifted(part_of(checkpoint, root), checkpoint, query, text, found)


def filtered(part: Excerpt, checkpoint: Checkpoint, text: str, path: str) -> Excerpt:
    """Return the excerpt that a filter keeps of a part of the checkpoint at ``path``.

    The part is examined as by ``read_filtered``.
    """
    query = parse(text)
    found = _examined(path).findings if query.asks_findings else ()
    return _sifted(part, checkpoint, query, text, found)


def _examined(path: str) -> FileReport:
    from ckptdoctor.examine.file import check

    return check(path)


def _sifted(part: Excerpt, checkpoint: Checkpoint, query: Query, text: str, found: tuple[Finding, ...]) -> Excerpt:
    """All tensors of the checkpoint are asked, as in the browser: one may be tied to another outside of the part."""
    table = Table(checkpoint.tensors)
    rows = query.rows(table, Findings(table, found))
    if rows is None:
        return part
    better = ""
    if not rows:
        from ckptdoctor.filters.suggestions import better_filter

        better = better_filter(text, table, Findings(table, found))
    return _only(part, {checkpoint.tensors[row].path for row in rows}, text, better)


def _only(part: Excerpt, paths: set[KeyPath], text: str, better: str) -> Excerpt:
    before = part.checkpoint
    tensors = tuple([each for each in before.tensors if each.path in paths])
    checkpoint = replace(
        before,
        tensors=tensors,
        storages=viewed(before, tensors),
        state_dicts=tuple(_with_tensors(before.state_dicts, paths)),
        metadata=None,
    )
    return Excerpt(checkpoint, part.root, pruned(part.node, paths), FilterAsked(text, len(before.tensors), better))


def _with_tensors(state_dicts: Iterable[StateDict], paths: set[KeyPath]) -> Iterable[StateDict]:
    for each in state_dicts:
        tensors = tuple([tensor for tensor in each.tensors if tensor.path in paths])
        if tensors:
            yield replace(each, tensors=tensors, others=(), metadata=None)


_Below = list[tuple[Part, Node]]  # what is left below a level, last first


def pruned(node: Node, paths: Set[KeyPath]) -> Node:
    """Return ``node`` with only the tensors at the ``paths``, and the levels on the way.

    It is an empty dict where there are none.

    Every step stays as it was, so that a list in which something is left out becomes a mapping of its indices. However
    deep it is, there is no recursion.
    """
    nodes, above = _levels(node, paths)
    below: list[_Below] = [[] for _ in nodes]
    for number in range(len(nodes) - 1, 0, -1):  # what is below a level comes behind it
        if below[number] or isinstance(nodes[number], Tensor):
            parent, part = above[number]
            below[parent].append((part, _with(nodes[number], below[number])))
    kept = below[0] or (isinstance(node, Tensor) and node.path in paths)
    return _with(node, below[0]) if kept else Mapping("dict", ())


def _levels(node: Node, paths: Set[KeyPath]) -> tuple[list[Node], list[tuple[int, Part]]]:
    """Return levels and wanted tensors, parents before children.

    With them come the number of the parent, and the step, of each.
    """
    nodes: list[Node] = [node]
    above: list[tuple[int, Part]] = [(0, "")]
    for number, level in enumerate(nodes):  # which grows meanwhile
        for part, child in children(level):
            if child.path in paths if isinstance(child, Tensor) else isinstance(child, Mapping | Sequence | Opaque):
                nodes.append(child)
                above.append((number, part))
    return nodes, above


def _with(node: Node, below: _Below) -> Node:
    """Return the level with other contents, each under the step that led to it before; a tensor as it is."""
    entries = tuple(reversed(below))
    if isinstance(node, Mapping):
        return Mapping(node.kind, entries)
    if isinstance(node, Sequence):
        whole = len(entries) == len(node.items)
        return Sequence(node.kind, tuple([child for _, child in entries])) if whole else Mapping(node.kind, entries)
    return Opaque(node.class_name, state=Mapping("dict", entries)) if isinstance(node, Opaque) else node
