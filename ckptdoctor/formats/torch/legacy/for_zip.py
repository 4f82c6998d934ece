"""Turns the persistent ids of a legacy pickle into those of an archive."""

from __future__ import annotations

from ckptdoctor.errors import RefusedError
from ckptdoctor.formats.torch.read.storages import claim_of
from ckptdoctor.formats.torch.read.sweep import nodes
from ckptdoctor.formats.torch.read.values import items, text
from ckptdoctor.formats.torch.read.views_in_graph import users_of_storages
from ckptdoctor.pickles import opcodes as op
from ckptdoctor.pickles.graph import Made, PersistentId, Pickle, Popped, Tuple, Value


def prepare_for_zip(pickle: Pickle) -> None:
    """Storages lose their view metadata (the offsets of tensors take it in), classes the source kept beside them.

    Raises RefusedError for a view of a storage that was saved on its own.
    """
    for users in users_of_storages(nodes(pickle.root)).values():
        viewed = {id(view.reference) for view in users.views}
        for view in users.views:
            if view.claim.view is not None:
                view.arguments[1] = view.offset + view.claim.view[1]
        for reference in users.references:
            claim = claim_of(reference)
            if claim is not None and claim.view is not None and id(reference) not in viewed:
                raise RefusedError(f"A part of storage {claim.key} was saved on its own, which an archive cannot hold.")
    for node in list(nodes(pickle.root)):
        for values in _lists(node):
            values[:] = [_without_source(value) for value in values]
        if isinstance(node, Popped):
            node.result = _without_source(node.result)
        if type(node) is PersistentId:
            parts = items(node.id) or []
            if len(parts) == 6 and claim_of(node) is not None:
                node.id = Tuple(op.TUPLE, parts[:5], node.id.memo if isinstance(node.id, Tuple) else -1)
    pickle.root = _without_source(pickle.root)


def _lists(node: object) -> list[list[Value]]:
    """The lists in a node that hold values."""
    if isinstance(node, Made):
        return [node.items, *[step.payload for step in node.steps or ()]]
    if isinstance(node, Tuple):
        return [node.items]
    return [node.discarded] if isinstance(node, Popped) else []


def _without_source(value: Value) -> Value:
    """The class itself, for ``('module', class, file, source)``."""
    if type(value) is PersistentId:
        parts = items(value.id)
        if parts is not None and len(parts) == 4 and text(parts[0]) == "module":
            return parts[1]
    return value
