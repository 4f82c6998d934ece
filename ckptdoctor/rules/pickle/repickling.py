"""Makes the fix that the rules about the form of a pickle share: the pickle is written again."""

from __future__ import annotations

from ckptdoctor.checkpoint import Checkpoint, Sequence, walk
from ckptdoctor.edits import Convert, Edit, Fix, Repickle, Safety

_ARCHIVE, _LEGACY = "torch zip", "torch legacy"


def can_be_repickled(checkpoint: Checkpoint) -> bool:
    """Return whether protocol 2 has plain words for everything in the file, as far as the tree tells."""
    if checkpoint.format not in (_ARCHIVE, _LEGACY):
        return False
    if not all(can_be_named(each.module, each.name) for each in checkpoint.globals):
        return False
    return not any(isinstance(node, Sequence) and node.kind == "frozenset" for _, node in walk(checkpoint.tree))


def repickle_fix(checkpoint: Checkpoint, title: str, code: str, *, encoding: str | None = None) -> Fix:
    """Return the fix that writes the pickle again; a file in torch's old format becomes an archive."""
    edits: list[Edit] = [] if checkpoint.format == _ARCHIVE else [Convert(_ARCHIVE)]
    safety = Safety.SAFE if encoding is None else Safety.UNSAFE
    return Fix(title, (*edits, Repickle(encoding)), safety, f"--select {code}")


def can_be_named(module: str, name: str) -> bool:
    """Return whether a class or function has a plain name in protocol 2 (see ``formats.torch.patch.new_nodes``)."""
    return "." not in name and f"{module}{name}".isascii() and f"{module}{name}".isprintable()
