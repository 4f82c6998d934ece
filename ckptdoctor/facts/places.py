"""What lies at a key path, where a file may be odder than its paths say."""

from __future__ import annotations

from ckptdoctor.checkpoint import KeyPath, Mapping, Node, at


def mapping_at(tree: Node, path: KeyPath) -> Mapping | None:
    """The dict at a key path; None where there is none: an object's state can hide what was found in it."""
    try:
        found = at(tree, path)
    except KeyError:
        return None
    return found if isinstance(found, Mapping) else None
