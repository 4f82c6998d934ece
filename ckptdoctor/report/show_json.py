"""The contents as JSON: every tensor with its view and storage, every state dict, and the nested rest."""

from __future__ import annotations

from ckptdoctor.checkpoint import (
    Checkpoint,
    Cycle,
    Elided,
    KeyPath,
    Mapping,
    Named,
    Node,
    Opaque,
    Sequence,
    Tensor,
    show_part,
    show_path,
)
from ckptdoctor.report import devices
from ckptdoctor.report.json import SCHEMA, bounded, dump, shape, summary
from ckptdoctor.report.summary import summarise

_DEPTH = 64  # levels of nested contents that are written; beyond it the kind alone


def render(
    checkpoint: Checkpoint,
    version: str,
    root: KeyPath = (),
    node: Node = None,
    asked: tuple[str, int] | None = None,
) -> str:
    """The part of the contents at ``root`` (``node``; None at no root: everything).

    ``asked`` is the filter that kept it, and of how many tensors it was asked.
    """
    tensors = [tensor for tensor in checkpoint.tensors if tensor.path[: len(root)] == root]
    return dump(
        {
            "schema": SCHEMA,
            "version": version,
            "path": checkpoint.path,
            "format": checkpoint.format,
            "root": show_path(root),
            **filter_of(asked),
            "summary": summary(summarise(checkpoint)),
            "metadata": checkpoint.metadata,
            "state_dicts": [
                {"path": show_path(each.path), "role": each.role.value, "tensors": len(each.tensors)}
                for each in checkpoint.state_dicts
            ],
            "devices": devices.as_data(checkpoint),
            "tensors": [_tensor(tensor) for tensor in tensors],
            "contents": _plain(checkpoint.tree if node is None and not root else node, _DEPTH),
        }
    )


def filter_of(asked: tuple[str, int] | None) -> dict[str, object]:
    """The entry that tells the filter, and how many tensors there were before it; none where there was no filter."""
    return {"filter": {"text": asked[0], "of_tensors": asked[1]}} if asked is not None else {}


def _tensor(tensor: Tensor) -> dict[str, object]:
    return {
        "path": show_path(tensor.path),
        "key": tensor.key,
        "dtype": tensor.dtype.name,
        "shape": shape(tensor.shape),
        "stride": shape(tensor.stride),
        "offset": bounded(tensor.offset),
        "bytes": bounded(tensor.nbytes),
        "device": tensor.device,
        "storage": tensor.storage.key if tensor.storage is not None else None,
        "layout": tensor.layout,
        "parameter": tensor.is_parameter,
        "requires_grad": tensor.requires_grad,
        "class": tensor.subclass,
    }


def _plain(node: Node, depth: int) -> object:
    """Plain values as they are; everything else as an object whose one key begins with ``$``."""
    if node is None or isinstance(node, bool | str):
        return node
    if isinstance(node, int):
        return bounded(node)
    if isinstance(node, float):
        return node if node - node == 0 else {"$float": str(node)}  # JSON has neither NaN nor infinity
    if isinstance(node, bytes):
        return {"$bytes": len(node)}
    if isinstance(node, Tensor):
        return {"$tensor": show_path(node.path)}
    return _compound(node, depth)


def _compound(node: Mapping | Sequence | Opaque | Named | Cycle | Elided, depth: int) -> object:
    if isinstance(node, Named):
        return {"$name": node.name}
    if isinstance(node, Cycle):
        return {"$same": show_path(node.path)}
    if isinstance(node, Elided) or depth == 0:
        return {"$elided": node.reason if isinstance(node, Elided) else "nested deeper than this report goes"}
    if isinstance(node, Mapping):
        return {show_part(part): _plain(child, depth - 1) for part, child in node.entries}
    if isinstance(node, Sequence):
        return [_plain(child, depth - 1) for child in node.items]
    return {
        "$class": node.class_name,
        "arguments": [_plain(child, depth - 1) for child in node.arguments],
        "state": _plain(node.state, depth - 1),
    }
