"""Finds the part of a checkpoint that a person names, ``models/0/net``, and what is next to it."""

from __future__ import annotations

from collections.abc import Iterator

from ckptdoctor.checkpoint import ROOT, KeyPath, Node, at, children, show_part, show_path
from ckptdoctor.errors import UsageError
from ckptdoctor.wording import and_so_on, did_you_mean

_SHOWN = 8  # how many names a message offers before it breaks off
_COMPARED = 2_000  # and how many it compares with what was typed


def find_root(tree: Node, text: str) -> KeyPath:
    """Return the key path that ``text`` names: steps joined by "/", as reports print them.

    "" and "(root)" are everything.

    A key may contain "/" itself: every way to split is tried, the shortest steps first. Raises UsageError with the
    names that are there when none fits.
    """
    if text.strip("/") in ("", "(root)"):
        return ROOT
    found = _descend(tree, text.strip("/"))
    if found is None:
        names = [show_part(part) for part, _ in children(tree)]
        listed = and_so_on(names, _SHOWN) or "nothing to enter"
        offer = did_you_mean(text, names[:_COMPARED])
        end = "" if listed.endswith("…") else "."
        raise UsageError(f'The checkpoint has no "{text}".{offer} Its top level holds {listed}{end}')
    return found


def _descend(node: Node, text: str) -> KeyPath | None:
    candidates = [(part, child) for part, child in children(node) if _begins(text, show_part(part))]
    for part, child in sorted(candidates, key=lambda step: len(show_part(step[0]))):
        rest = text[len(show_part(part)) + 1 :]
        below = _descend(child, rest) if rest else ROOT
        if below is not None:
            return (part, *below)
    return None


def _begins(text: str, name: str) -> bool:
    return text == name or text.startswith(f"{name}/")


def beside(tree: Node, root: KeyPath) -> Iterator[str]:
    """Yield what is next to the root, in a few words each."""
    from ckptdoctor.checkpoint.changed_trees import tensors_in

    node = tree
    for depth, part in enumerate(root):
        for own, child in children(node):
            if own != part:
                count = sum(1 for _ in tensors_in(child))
                told = f" ({count:,} tensors)" if count > 1 else " (a tensor)" if count else ""
                yield f"{show_path((*root[:depth], own))}{told}"
        node = at(node, (part,))
